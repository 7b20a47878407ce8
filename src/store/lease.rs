//! Leases: the claim of one run, or of one program, to a thread for some time.
//!
//! A lease keeps a second runner from starting; it does not protect the log. An expiry is compared with a clock of the
//! time of day, which may jump, and a process that was stopped finds its lease expired when it continues. Therefore
//! every batch of an owner names it, and the store compares it with the stored lease in the transaction of the batch:
//! what an owner commits after another one has claimed the thread is refused. *Absent:* renewing in time, which is the
//! work of a driver.
//!
//! A claim may name groups with limits, such as the runs of a queue. The members of a group are counted in the
//! transaction of the claim, so a limit holds over all processes.
//!
//! Invariants: a thread has one lease at most; the epoch of a thread rises with each claim and is never used twice.

use std::fmt;
use std::time::Duration;

use super::error::StoreError;
use super::process::ProcessMark;
use crate::base::limits::{LEASE_GROUPS_MAX, LEASE_MIN};
use crate::base::{ThreadId, Timestamp, setters};
use crate::limits::{LEASE_GROUP_BYTES_MAX, LEASE_GROUP_LIMIT_MAX, LEASE_MAX};

/// The owner of a lease: a random id, and the process in which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOwner {
    id: [u8; 16],
    process: ProcessMark,
}

impl LeaseOwner {
    /// Makes an owner in this process from 16 random bytes ([`Store::mint_owner`](super::Store::mint_owner)).
    pub fn new(id: [u8; 16]) -> Self {
        Self { id, process: ProcessMark::of_this() }
    }

    /// Makes the owner that a backend has stored: its id, and the text of its process.
    pub fn from_stored(id: [u8; 16], process: &str) -> Self {
        Self { id, process: ProcessMark::read(process) }
    }

    /// Returns the id.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Returns the text by which a backend stores the process.
    pub fn process_text(&self) -> String {
        self.process.to_text()
    }

    /// Returns whether two owners were made in one process.
    pub(super) fn is_of_process_of(&self, other: &Self) -> bool {
        self.process == other.process
    }

    /// Returns the number that the operating system gave the process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether the process has ended. Only Linux tells, of a process on this machine; `false` means alive or
    /// unknown.
    pub fn has_died(&self) -> bool {
        self.process.has_died()
    }
}

/// Writes the process.
impl fmt::Display for LeaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.id;
        write!(f, "{a:02x}{b:02x} of process {}", self.process.id())
    }
}

/// The lease of a thread, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// The owner.
    pub owner: LeaseOwner,
    /// The number of the claim; that of the first claim of a thread is 1.
    pub epoch: u64,
    /// The timestamp from which on others may claim the thread; `None` if the lease was released.
    pub expires_at: Option<Timestamp>,
    /// The number of claims, up to this one, of which each followed a lease that was not released: the owner before had
    /// died, or did not renew it.
    pub recoveries: u64,
}

impl LeaseRecord {
    /// Returns whether this lease in the place of another one is a claim. A batch of an owner that holds the lease
    /// already claims nothing.
    pub fn is_claim(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| before.epoch < self.epoch)
    }

    /// Makes the record of a stored lease.
    pub fn new(owner: LeaseOwner, epoch: u64, expires_at: Option<Timestamp>, recoveries: u64) -> Self {
        Self { owner, epoch, expires_at, recoveries }
    }

    /// Returns whether the lease keeps others from a claim at a timestamp: it is not released and not expired, and its
    /// process is not known to have ended.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|until| now < until) && !self.owner.has_died()
    }
}

/// The lease that a batch names, and the change to it. The store compares and changes it in the transaction of the
/// batch.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals::base::ThreadId;
/// use annals::store::{Store, StoreError};
/// use annals::store::batch::Batch;
/// use annals::store::lease::NewLease;
/// # use annals::prelude::*;
/// # #[derive(State, Clone, Default)]
/// # struct Note { text: String }
///
/// # fn main() -> annals::Result<()> {
/// let store = Store::memory();
/// let thread = ThreadId::new("order-17").map_err(StoreError::from)?;
/// # store.thread("order-17")?.update(Note::update().text("new"))?;
/// let until = |seconds| store.now().saturating_add(Duration::from_secs(seconds));
/// let (first, second) = (store.mint_owner(), store.mint_owner());
/// store.commit(&Batch::of_lease(thread.clone(), NewLease::claim(first.clone(), store.now(), until(30))))?;
///
/// let refused = store.commit(&Batch::of_lease(thread.clone(), NewLease::claim(second.clone(), store.now(), until(30))));
/// assert!(matches!(refused, Err(StoreError::Leased { .. })));
/// store.commit(&Batch::of_lease(thread.clone(), NewLease::release(first)))?;
/// store.commit(&Batch::of_lease(thread, NewLease::claim(second, store.now(), until(30))))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewLease {
    /// The owner. Unless the batch claims the thread, the stored lease must be of this owner.
    pub owner: LeaseOwner,
    /// The present timestamp if the batch claims the thread: a lease of another owner must have expired by then.
    pub claimed_at: Option<Timestamp>,
    /// The timestamp at which a claimed or renewed lease expires; `None` leaves it.
    pub expires_at: Option<Timestamp>,
    /// The epoch of a lease that is ended although it has not expired. A live lease with another epoch
    /// refuses the batch.
    pub over: Option<u64>,
    /// True if the lease is released after the batch.
    pub releases: bool,
    /// The groups that a claim enters. A claim that a limit of one of them refuses changes nothing.
    pub groups: Vec<LeaseGroup>,
}

/// A group of leases with limits, which hold over all processes that use the store. The lease of a thread is in the
/// groups that its last claim named, until it is released. The limits are those of the claim: two claims may name one
/// group with different limits, and each is compared with its own.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals::prelude::*;
/// use annals::store::StoreError;
/// use annals::store::batch::Batch;
/// use annals::store::lease::{LeaseGroup, NewLease};
///
/// # fn main() -> annals::Result<()> {
/// let store = Store::memory();
/// let claim = |name: &str| {
///     let thread = store.thread(name)?;
///     thread.set("n", 1)?;
///     let until = store.now().saturating_add(Duration::from_secs(30));
///     let lease = NewLease::claim(store.mint_owner(), store.now(), until).in_groups([LeaseGroup::new("book").live_max(2)]);
///     store.commit(&Batch::of_lease(thread.id().clone(), lease)).map_err(annals::Error::from)
/// };
/// claim("order-1")?;
/// claim("order-2")?;
/// let refused = claim("order-3").unwrap_err();
/// assert!(matches!(refused.as_store(), Some(StoreError::LeaseLimit { group, .. }) if group == "book"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGroup {
    /// The name.
    pub name: String,
    /// The number of live leases that the group may have; `None` for any.
    pub live_max: Option<u64>,
    /// The number of claims within a period, and the period; `None` for any.
    pub rate: Option<(u64, Duration)>,
}

impl LeaseGroup {
    /// Names a group without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), live_max: None, rate: None }
    }

    setters! {
        /// Allows a number of live leases at the same time.
        pub fn live_max(leases: u64) { .live_max = Some(leases) }

        /// Allows a number of claims within each period: the claims of any span of that duration are counted. Two
        /// claims of one thread within a period count as one.
        pub fn rate(claims: u64, period: Duration) { .rate = Some((claims, period)) }
    }

    /// Returns the timestamp until which a claim at `now` counts for the rate; `None` without a rate.
    pub fn rated_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.rate.map(|(_, period)| now.saturating_add(period))
    }

    /// Compares a claim with the limits. `members` are the other threads of the group: whether the lease of each is
    /// live, and until when its last claim counts for the rate. Every backend calls this in the transaction of the
    /// claim.
    ///
    /// # Errors
    /// [`StoreError::LeaseLimit`].
    pub fn admit(
        &self,
        now: Timestamp,
        members: impl IntoIterator<Item = (bool, Option<Timestamp>)>,
    ) -> Result<(), StoreError> {
        let (mut live, mut rated) = (0, Vec::new());
        for (is_live, rated_until) in members {
            live += u64::from(is_live);
            rated.extend(rated_until.filter(|until| *until > now));
        }
        let refuse = |until| Err(StoreError::LeaseLimit { group: self.name.clone(), until });
        if self.live_max.is_some_and(|max| live >= max) {
            return refuse(None);
        }
        let Some((claims, _)) = self.rate else { return Ok(()) };
        rated.sort_unstable();
        // The claim has room when all but `claims - 1` of those before it have left the period.
        let excess = (rated.len() as u64 + 1).saturating_sub(claims);
        match usize::try_from(excess).ok().filter(|excess| *excess > 0) {
            None => Ok(()),
            Some(excess) => refuse(rated.get(excess - 1).copied()),
        }
    }

    pub(super) fn validate(&self) -> Result<(), StoreError> {
        let invalid = |reason: String| Err(StoreError::Invalid { field: "lease group", reason });
        if self.name.is_empty() || self.name.len() > LEASE_GROUP_BYTES_MAX {
            return invalid(format!("its name has {} bytes, and needs 1 to {LEASE_GROUP_BYTES_MAX}", self.name.len()));
        }
        for limit in self.live_max.into_iter().chain(self.rate.map(|(claims, _)| claims)) {
            if !(1..=LEASE_GROUP_LIMIT_MAX).contains(&limit) {
                return invalid(format!("the limit {limit} is not between 1 and {LEASE_GROUP_LIMIT_MAX}"));
            }
        }
        match self.rate {
            Some((_, period)) if period.is_zero() || period > LEASE_MAX => {
                invalid(format!("the period {period:?} is not above zero and at most {LEASE_MAX:?}"))
            }
            _ => Ok(()),
        }
    }
}

impl NewLease {
    fn of(owner: LeaseOwner) -> Self {
        Self { owner, claimed_at: None, expires_at: None, over: None, releases: false, groups: Vec::new() }
    }

    /// Claims the thread at `now` until a timestamp. The batch is refused with [`StoreError::Leased`] while the lease
    /// of another owner is live.
    pub fn claim(owner: LeaseOwner, now: Timestamp, until: Timestamp) -> Self {
        Self { claimed_at: Some(now), expires_at: Some(until), ..Self::of(owner) }
    }

    /// Enters groups, at most 16: the claim is refused with [`StoreError::LeaseLimit`] if a limit of one of them is
    /// reached.
    pub fn in_groups(mut self, groups: impl IntoIterator<Item = LeaseGroup>) -> Self {
        self.groups = groups.into_iter().collect();
        self
    }

    /// Returns the groups that the batch enters if it claims the thread, and the timestamp of the claim.
    pub fn entered(&self) -> Option<(Timestamp, &[LeaseGroup])> {
        self.claimed_at.filter(|_| !self.releases && !self.groups.is_empty()).map(|now| (now, &*self.groups))
    }

    /// Checks the groups against the limits.
    ///
    /// # Errors
    /// [`StoreError::Invalid`].
    pub(super) fn validate(&self) -> Result<(), StoreError> {
        if self.groups.len() > LEASE_GROUPS_MAX {
            let reason = format!("{} groups are named, the limit is {LEASE_GROUPS_MAX}", self.groups.len());
            return Err(StoreError::Invalid { field: "lease group", reason });
        }
        self.groups.iter().try_for_each(LeaseGroup::validate)
    }

    /// Names the owner, and changes nothing. The batch is refused with [`StoreError::LeaseLost`] if another owner has
    /// claimed the thread since.
    pub fn hold(owner: LeaseOwner) -> Self {
        Self::of(owner)
    }

    /// Moves the expiry of a lease that was not released; refused as [`NewLease::hold`].
    pub fn renew(owner: LeaseOwner, until: Timestamp) -> Self {
        Self { expires_at: Some(until), ..Self::of(owner) }
    }

    /// Releases the lease; refused as [`NewLease::hold`].
    pub fn release(owner: LeaseOwner) -> Self {
        Self { releases: true, ..Self::of(owner) }
    }

    /// Requires that no lease is live at `now`, and takes none.
    pub fn require_unclaimed(owner: LeaseOwner, now: Timestamp) -> Self {
        Self { claimed_at: Some(now), releases: true, ..Self::of(owner) }
    }

    /// Ends the lease with an epoch, also a live one: its owner is refused from then on.
    pub(crate) fn break_of(owner: LeaseOwner, now: Timestamp, epoch: u64) -> Self {
        Self { over: Some(epoch), ..Self::require_unclaimed(owner, now) }
    }

    /// Compares the batch with the stored lease. Every backend calls this in the transaction of the batch. Returns the
    /// lease to be stored; `None` leaves the stored one.
    ///
    /// # Errors
    /// [`StoreError::Leased`], [`StoreError::LeaseLost`].
    pub fn apply(&self, thread: &ThreadId, stored: Option<&LeaseRecord>) -> Result<Option<LeaseRecord>, StoreError> {
        let own = stored.filter(|lease| lease.owner.id == self.owner.id);
        if let Some(own) = own {
            return Ok(self.changed(own));
        }
        let Some(now) = self.claimed_at else {
            // A thread without a lease was erased, or recovered from damage, since the claim: its heads protect it.
            let lost =
                |other: &LeaseRecord| StoreError::LeaseLost { thread: thread.clone(), owner: other.owner.to_string() };
            return stored.map_or(Ok(None), |other| Err(lost(other)));
        };
        let breaks = self.over.is_some() && self.over == stored.map(|lease| lease.epoch);
        if let Some(live) = stored.filter(|lease| !breaks && lease.is_live(now)) {
            let owner = live.owner.to_string();
            return Err(StoreError::Leased { thread: thread.clone(), owner, until: live.expires_at.unwrap_or(now) });
        }
        if self.releases && !breaks {
            return Ok(None);
        }
        let recovers = !breaks && stored.is_some_and(|lease| lease.expires_at.is_some());
        let recoveries = if recovers { stored.map_or(0, |lease| lease.recoveries) + 1 } else { 0 };
        let epoch = stored.map_or(0, |lease| lease.epoch) + 1;
        let expires_at = self.expires_at.filter(|_| !self.releases);
        Ok(Some(LeaseRecord { owner: self.owner.clone(), epoch, expires_at, recoveries }))
    }

    /// Returns the lease of the owner after the batch; `None` if it stays.
    fn changed(&self, own: &LeaseRecord) -> Option<LeaseRecord> {
        // A released lease is not taken up again by a renewal that comes late.
        let expires_at = match own.expires_at {
            None => None,
            Some(_) if self.releases => None,
            Some(until) => Some(self.expires_at.unwrap_or(until)),
        };
        (expires_at != own.expires_at).then(|| LeaseRecord { expires_at, ..own.clone() })
    }
}

/// Checks the duration of a lease against the limits.
///
/// # Errors
/// [`StoreError::Invalid`].
pub fn validate_lease(duration: Duration) -> Result<(), StoreError> {
    if (LEASE_MIN..=LEASE_MAX).contains(&duration) {
        return Ok(());
    }
    let reason = format!("{duration:?} is not between {LEASE_MIN:?} and {LEASE_MAX:?}");
    Err(StoreError::Invalid { field: "lease", reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> LeaseOwner {
        LeaseOwner::new([n; 16])
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn apply(new: &NewLease, stored: Option<&LeaseRecord>) -> Result<Option<LeaseRecord>, StoreError> {
        new.apply(&ThreadId::new("t").expect("a thread id"), stored)
    }

    #[test]
    fn the_epoch_rises_with_each_claim_and_a_release_ends_the_recoveries() {
        let first = apply(&NewLease::claim(owner(1), at(0), at(30)), None).unwrap().unwrap();
        assert_eq!((first.epoch, first.recoveries), (1, 0));
        let second = apply(&NewLease::claim(owner(2), at(30), at(60)), Some(&first)).unwrap().unwrap();
        assert_eq!((second.epoch, second.recoveries), (2, 1), "the first lease has expired");
        let released = apply(&NewLease::release(owner(2)), Some(&second)).unwrap().unwrap();
        assert_eq!((released.epoch, released.expires_at), (2, None));
        let third = apply(&NewLease::claim(owner(3), at(31), at(60)), Some(&released)).unwrap().unwrap();
        assert_eq!((third.epoch, third.recoveries), (3, 0));
    }

    #[test]
    fn a_live_lease_refuses_claims_and_a_lost_lease_refuses_its_owner() {
        let first = apply(&NewLease::claim(owner(1), at(0), at(30)), None).unwrap().unwrap();
        for new in [NewLease::claim(owner(2), at(29), at(60)), NewLease::require_unclaimed(owner(2), at(29))] {
            let refused = apply(&new, Some(&first)).unwrap_err();
            assert!(matches!(refused, StoreError::Leased { until, .. } if until == at(30)), "{refused}");
        }
        assert_eq!(apply(&NewLease::require_unclaimed(owner(2), at(30)), Some(&first)).unwrap(), None);
        let second = apply(&NewLease::claim(owner(2), at(30), at(60)), Some(&first)).unwrap().unwrap();
        for new in [NewLease::hold(owner(1)), NewLease::renew(owner(1), at(90)), NewLease::release(owner(1))] {
            assert!(matches!(apply(&new, Some(&second)), Err(StoreError::LeaseLost { .. })));
        }
    }

    #[test]
    fn a_late_renewal_does_not_take_a_released_lease_up_again() {
        let first = apply(&NewLease::claim(owner(1), at(0), at(30)), None).unwrap().unwrap();
        let renewed = apply(&NewLease::renew(owner(1), at(40)), Some(&first)).unwrap().unwrap();
        assert_eq!(renewed.expires_at, Some(at(40)));
        let released = apply(&NewLease::release(owner(1)), Some(&renewed)).unwrap().unwrap();
        assert_eq!(apply(&NewLease::renew(owner(1), at(90)), Some(&released)).unwrap(), None);
        assert_eq!(apply(&NewLease::hold(owner(1)), Some(&released)).unwrap(), None);
    }

    #[test]
    fn a_group_refuses_live_leases_past_its_limit_and_claims_past_its_rate() {
        let group = LeaseGroup::new("g").live_max(2).rate(3, Duration::from_secs(10));
        let refused = |members: &[(bool, Option<i64>)], now| {
            let members = members.iter().map(|(live, until)| (*live, until.map(at)));
            match group.admit(at(now), members) {
                Ok(()) => None,
                Err(StoreError::LeaseLimit { until, .. }) => Some(until),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(refused(&[(true, None), (false, None)], 0), None);
        assert_eq!(refused(&[(true, None), (true, None)], 0), Some(None));
        let rated = [(false, Some(12)), (false, Some(11)), (true, Some(10))];
        assert_eq!(refused(&rated, 5), Some(Some(at(10))), "the fourth claim waits for the first to leave the period");
        assert_eq!(refused(&rated, 10), None);
    }

    #[test]
    fn a_broken_lease_refuses_its_owner_and_an_epoch_that_has_passed_breaks_nothing() {
        let first = apply(&NewLease::claim(owner(1), at(0), at(30)), None).unwrap().unwrap();
        let broken = apply(&NewLease::break_of(owner(2), at(1), 1), Some(&first)).unwrap().unwrap();
        assert_eq!((broken.epoch, broken.expires_at, broken.recoveries), (2, None, 0));
        assert!(matches!(apply(&NewLease::hold(owner(1)), Some(&broken)), Err(StoreError::LeaseLost { .. })));
        let third = apply(&NewLease::claim(owner(3), at(2), at(30)), Some(&broken)).unwrap().unwrap();
        let late = apply(&NewLease::break_of(owner(2), at(3), 1), Some(&third));
        assert!(matches!(late, Err(StoreError::Leased { .. })), "{late:?}");
    }
}

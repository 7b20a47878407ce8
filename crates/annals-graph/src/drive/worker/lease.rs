//! The lease of a run: claimed before its first effect, renewed in time, released at its end.
//!
//! A run with an input claims the thread in the commit of that input; any other run in a transaction of its own, before
//! it loads its head. One thread renews the leases of all runs of the process. *Absent:* the comparison of a lease,
//! which the store makes in the transaction of each commit.

use annals::store::log::LogExt;
use annals_runs::{ControlOrder, StoreRuns};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::CheckpointId;
use crate::drive::run::builder::{Durability, RunSettings};
use crate::drive::run::host::RunHost;
use crate::elapsed::ElapsedTime;
use crate::error::Error;
use crate::exec::RunStart;
use crate::history::Thread;
use crate::limits::{CONTROL_INTERVAL, LEASE_RETRY, RENEWAL_IDLE};
use crate::run::RunLease;
use crate::store::batch::Batch;
use crate::store::lease::{LeaseGroup, LeaseOwner, LeaseRecord, NewLease, validate_lease};
use crate::store::log::{CommitChain, CommitHandle, LogWatch};
use crate::store::{CheckpointRef, Store, StoreError};
use crate::task::RunControl;

/// The lease of a run that is being set up. It is released if the run does not begin.
pub(in crate::drive) struct Claimed {
    thread: Thread,
    lease: Option<RunLease>,
}

impl Claimed {
    /// Hands the lease over to the run.
    pub(in crate::drive) fn take(&mut self) -> Option<RunLease> {
        self.lease.take()
    }
}

/// A lease that a worker has claimed for a run, until the run takes it. It is released if none does.
pub(in crate::drive) type HeldLease = Arc<Mutex<Option<Claimed>>>;

/// Makes the lease of a thread that is claimed.
pub(super) fn held(thread: Thread, owner: LeaseOwner, duration: Duration) -> HeldLease {
    Arc::new(Mutex::new(Some(Claimed { thread, lease: Some(RunLease::new(owner, Some(duration), true)) })))
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take().filter(RunLease::is_held) {
            let (store, thread) = (self.thread.store(), self.thread.id().clone());
            store.abandon_commits([store.submit(Batch::of_lease(thread, NewLease::release(lease.owner)))]);
        }
    }
}

impl RunSettings {
    /// Verifies that the lease of another run is not live, for a run that takes none and commits no input before its
    /// first node.
    ///
    /// # Errors
    /// [`StoreError::Leased`].
    pub(in crate::drive) fn verify_free(
        &self,
        thread: &Thread,
        start: &RunStart,
        lease: Option<&LeaseRecord>,
    ) -> Result<(), Error> {
        let now = thread.store().now();
        if self.lease.is_some() || matches!(start, RunStart::Show) || self.claims_with_input(start) {
            return Ok(());
        }
        let Some((owner, until)) =
            lease.filter(|lease| lease.is_live(now)).and_then(|lease| Some((&lease.owner, lease.expires_at?)))
        else {
            return Ok(());
        };
        Err(StoreError::Leased { thread: thread.id().clone(), owner: owner.to_string(), until }.into())
    }

    /// Returns whether the first commit of a run stores its input before a node starts.
    fn claims_with_input(&self, start: &RunStart) -> bool {
        matches!(start, RunStart::Input(_)) && self.durability != Some(Durability::Exit)
    }

    /// Claims the thread of a run, unless its caller has claimed it, or the commit of its input does so.
    ///
    /// # Errors
    /// [`StoreError::Leased`]; as [`Thread::lease`].
    pub(in crate::drive) fn claim(&self, thread: &Thread, start: &RunStart) -> Result<Claimed, Error> {
        if let Some(claimed) = self.held_lease.as_ref().and_then(|held| held.lock().take()) {
            return Ok(claimed);
        }
        let is_first = self.claims_with_input(start);
        let store = thread.store();
        let lease = match self.lease {
            // Without an input the loaded head tells the lease.
            None => is_first.then(|| RunLease::new(LeaseOwner::new([0; 16]), None, false)),
            Some(duration) => {
                validate_lease(duration)?;
                let owner = store.mint_owner();
                let mut is_held = false;
                if !is_first || self.lease_wait.is_some() {
                    store.flush_abandoned();
                    let wait = self.lease_wait.unwrap_or_default();
                    is_held = claim_waiting(thread, &owner, duration, wait, &self.lease_groups)?;
                }
                Some(RunLease::new(owner, Some(duration), is_held))
            }
        };
        Ok(Claimed { thread: thread.clone(), lease })
    }
}

/// Claims a thread, and waits for the lease of another owner at most for a time. Returns `false` for a thread without a
/// checkpoint, which the first commit claims.
fn claim_waiting(
    thread: &Thread,
    owner: &LeaseOwner,
    duration: Duration,
    wait: Duration,
    groups: &[LeaseGroup],
) -> Result<bool, StoreError> {
    let (store, began) = (thread.store(), ElapsedTime::start());
    let mut signals = None;
    loop {
        let seen = signals.as_ref().map_or(0, |watch: &LogWatch| watch.signal.count());
        let now = store.now();
        let claim = NewLease::claim(owner.clone(), now, now.saturating_add(duration)).in_groups(groups.iter().cloned());
        let until = match store.commit(&Batch::of_lease(thread.id().clone(), claim)) {
            Ok(()) => return Ok(true),
            Err(StoreError::ThreadNotFound { .. }) => return Ok(false),
            Err(refused @ StoreError::Leased { until, .. }) => {
                if began.elapsed() >= wait {
                    return Err(refused);
                }
                until
            }
            Err(error) => return Err(error),
        };
        let Some(watch) = &mut signals else {
            // A release before the signals is found by another attempt.
            signals = Some(store.backend().follow()?.watch()?);
            continue;
        };
        let expires_in = u64::try_from(until.as_micros() - store.now().as_micros()).unwrap_or(0);
        // A process that dies gives no signal.
        let retry = Duration::from_micros(expires_in).min(LEASE_RETRY).min(wait.saturating_sub(began.elapsed()));
        let since = ElapsedTime::start();
        while let Some(left) = retry.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            if watch.wait(seen, left)? {
                break;
            }
        }
    }
}

/// The renewal of the lease of one run, until it is dropped.
pub(in crate::drive) struct Renewal {
    id: u64,
    run: Arc<Renewed>,
}

/// The parts of a run that the thread that renews uses.
struct Renewed {
    store: Store,
    host: Weak<RunHost>,
    owner: LeaseOwner,
    thread: Thread,
    control: RunControl,
    /// The head that the run began on.
    began: Option<CheckpointId>,
    duration: Duration,
    /// The last renewal, until its outcome is known.
    submitted: Mutex<Option<CommitHandle>>,
}

impl Renewal {
    /// Begins to renew the lease of a run, if it takes one.
    pub(in crate::drive) fn begin(
        host: &Arc<RunHost>,
        control: &RunControl,
        began: Option<&CheckpointRef>,
    ) -> Option<Self> {
        let lease = host.session.lock().lease.clone()?;
        let (thread, duration) = (host.thread.as_ref()?, lease.duration?);
        let run = Renewed {
            store: thread.store().clone(),
            host: Arc::downgrade(host),
            owner: lease.owner,
            thread: thread.clone(),
            control: control.clone(),
            began: began.map(|point| point.checkpoint),
            duration,
            submitted: Mutex::new(None),
        };
        let run = Arc::new(run);
        Some(Self { id: Renewer::add(&run), run })
    }

    /// Returns the batch that releases the lease, if the run still holds it.
    pub(in crate::drive) fn release(&self) -> Option<Batch> {
        let host = self.run.host.upgrade()?;
        let mut session = host.session.lock();
        let failed = session.failure().is_some();
        let lease = session.lease.as_mut().filter(|lease| lease.is_unreleased(failed))?;
        lease.end();
        Some(Batch::of_lease(self.run.thread.id().clone(), NewLease::release(lease.owner.clone())))
    }
}

/// Ends the renewals, and releases a lease that the run still holds: it was dropped, or has failed.
impl Drop for Renewal {
    fn drop(&mut self) {
        Renewer::remove(self.id);
        if let Some(batch) = self.release() {
            let store = &self.run.store;
            // A lock of another program must not leave the lease to a run that has ended: its worker would wait for it.
            let batch = CommitChain::begin_with_lock_wait(|_| ()).append(batch);
            store.abandon_commits([store.submit(batch)]);
        }
    }
}

impl Renewed {
    /// Renews the lease, or finds out if the last renewal was refused. Returns the time to the next call; `None` if the
    /// lease was lost, or the run has ended.
    fn renew(&self) -> Option<Duration> {
        let host = self.host.upgrade()?;
        let mut submitted = self.submitted.lock();
        if let Some(handle) = submitted.as_ref() {
            if !handle.is_settled() {
                return Some(self.duration / 10);
            }
            match submitted.take().map_or(Ok(()), |handle| handle.wait()) {
                Ok(()) => return Some(self.duration / 3),
                Err(lost @ StoreError::LeaseLost { .. }) => {
                    // No further task of the run starts, and no commit of it is stored.
                    host.session.lock().refuse(&lost);
                    return None;
                }
                // The disk or a lock was in the way: once more.
                Err(_) => {}
            }
        }
        if host.session.lock().lease.as_ref().is_some_and(RunLease::is_held) {
            let until = self.store.now().saturating_add(self.duration);
            let lease = NewLease::renew(self.owner.clone(), until);
            *submitted = Some(self.store.submit(Batch::of_lease(self.thread.id().clone(), lease)));
        }
        Some(self.duration / 10)
    }
}

/// Reads the orders from outside to runs of one store, in their order. A run that cannot be read now has none.
fn control_orders(runs: &[Arc<Renewed>]) -> Vec<Option<ControlOrder>> {
    let Some(first) = runs.first() else { return Vec::new() };
    let asked: Vec<_> = runs.iter().map(|run| (run.thread.id(), run.began)).collect();
    // A damaged thread does not hide the orders to others.
    let alone = |run: &Arc<Renewed>| first.store.control_orders(&[(run.thread.id(), run.began)]).ok()?.pop()?;
    first.store.control_orders(&asked).unwrap_or_else(|_| runs.iter().map(alone).collect())
}

/// Passes the cancels and pauses from outside on to runs: the one place that reads what controls the runs of a process.
fn heed_orders(runs: &mut [Arc<Renewed>]) {
    let log = |run: &Arc<Renewed>| std::ptr::from_ref(run.store.backend()).cast::<()>();
    runs.sort_by_key(log);
    let orders = runs.chunk_by(|one, other| log(one) == log(other)).flat_map(control_orders);
    for (run, order) in runs.iter().zip(orders) {
        match order {
            Some(ControlOrder::Cancel(reason)) => run.control.cancel(reason),
            Some(ControlOrder::Pause) => run.control.request_drain("the thread is paused"),
            None => {}
        }
    }
}

/// The thread that renews the leases of all runs of the process, and reads what controls them.
struct Renewer {
    clock: ElapsedTime,
    leased: Mutex<LeasedRuns>,
    changed: Condvar,
}

/// The runs of the process that have a lease. Times are those of the clock of the renewer.
#[derive(Default)]
struct LeasedRuns {
    /// The runs with the times of their next renewals.
    runs: BTreeMap<u64, (Duration, Weak<Renewed>)>,
    /// The time at which the orders to all runs are read next.
    controlled_at: Duration,
    last_id: u64,
    /// The time of the next wake-up of the thread; `None` without a thread.
    wakes_at: Option<Duration>,
}

impl LeasedRuns {
    /// Returns the runs whose leases are to be renewed.
    fn due_for_renewal(&self, now: Duration) -> Vec<(u64, Arc<Renewed>)> {
        let due = self.runs.iter().filter(|(_, (at, _))| *at <= now);
        due.filter_map(|(id, (_, run))| Some((*id, run.upgrade()?))).collect()
    }

    /// Returns all runs if their orders are to be read, and sets the time of the next read.
    fn take_due_for_orders(&mut self, now: Duration) -> Vec<Arc<Renewed>> {
        if self.controlled_at > now {
            return Vec::new();
        }
        self.controlled_at = now + CONTROL_INTERVAL;
        self.runs.values().filter_map(|(_, run)| run.upgrade()).collect()
    }

    /// Sets the time of the next renewal of a run, or removes a run without one.
    fn renewed(&mut self, id: u64, next: Option<Duration>) {
        match (next, self.runs.get_mut(&id)) {
            (Some(next), Some((at, _))) => *at = next,
            _ => _ = self.runs.remove(&id),
        }
    }

    /// Returns the time of the first renewal or read, `None` without runs.
    fn first(&self) -> Option<Duration> {
        self.runs.values().map(|(at, _)| (*at).min(self.controlled_at)).min()
    }
}

static RENEWER: LazyLock<Renewer> =
    LazyLock::new(|| Renewer { clock: ElapsedTime::start(), leased: Mutex::default(), changed: Condvar::new() });

impl Renewer {
    fn add(run: &Arc<Renewed>) -> u64 {
        let now = RENEWER.clock.elapsed();
        let mut leased = RENEWER.leased.lock();
        if leased.runs.is_empty() {
            leased.controlled_at = now + CONTROL_INTERVAL;
        }
        leased.last_id += 1;
        let (id, renews_at) = (leased.last_id, now + run.duration / 3);
        leased.runs.insert(id, (renews_at, Arc::downgrade(run)));
        let at = renews_at.min(leased.controlled_at);
        match leased.wakes_at {
            Some(wakes_at) if wakes_at <= at => {}
            Some(_) => _ = RENEWER.changed.notify_one(),
            None => {
                leased.wakes_at = Some(at);
                let thread = std::thread::Builder::new().name("annals-lease".into());
                // Without a thread the leases are not renewed; they expire, and the commits of their runs stay fenced.
                if thread.spawn(|| RENEWER.work()).is_err() {
                    leased.wakes_at = None;
                }
            }
        }
        id
    }

    fn remove(id: u64) {
        RENEWER.leased.lock().runs.remove(&id);
    }

    fn work(&self) {
        let mut leased = self.leased.lock();
        let mut last_id = leased.last_id;
        loop {
            let now = self.clock.elapsed();
            for (id, run) in leased.due_for_renewal(now) {
                // A renewal may wait for a lock of the run.
                let next = MutexGuard::unlocked(&mut leased, || {
                    let next = run.renew();
                    drop(run);
                    next.map(|next| self.clock.elapsed() + next)
                });
                leased.renewed(id, next);
            }
            let mut controlled = leased.take_due_for_orders(now);
            MutexGuard::unlocked(&mut leased, || {
                heed_orders(&mut controlled);
                drop(controlled);
            });
            if leased.runs.is_empty() && leased.last_id == last_id && leased.wakes_at.is_none_or(|at| at <= now) {
                leased.wakes_at = None;
                return;
            }
            last_id = leased.last_id;
            let wakes_at = leased.first().unwrap_or(now + RENEWAL_IDLE);
            leased.wakes_at = Some(wakes_at);
            let wait = wakes_at.saturating_sub(self.clock.elapsed());
            self.changed.wait_for(&mut leased, wait);
        }
    }
}

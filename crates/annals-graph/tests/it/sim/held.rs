//! A second account of leases, kept beside the store: one owner at a time, and only its commits are stored.

use std::collections::HashMap;

use annals::base::{ThreadId, Timestamp};
use annals::store::StoreError;
use annals::store::batch::Batch;
use annals::store::lease::{LeaseOwner, NewLease};

use super::queues::Claims;

/// The leases as the accepted batches tell them, without a look at those of the store.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases {
    held: HashMap<ThreadId, (LeaseOwner, Option<Timestamp>)>,
    /// Batches that must not have been stored.
    pub(crate) wrong: Vec<String>,
    /// Number of claims of a thread whose last owner had not released it.
    pub(crate) takeovers: u64,
    /// Number of batches that were refused because their owner had lost its lease.
    pub(crate) fenced: u64,
    /// Number of claims that a limit refused.
    pub(crate) limited: u64,
    /// The claims under limits.
    pub(crate) claims: Claims,
}

impl HeldLeases {
    /// Notes the outcome of a batch.
    pub(crate) fn note(&mut self, batch: &Batch, outcome: &Result<(), StoreError>) {
        if let Err(error) = outcome {
            self.fenced += u64::from(matches!(error, StoreError::LeaseLost { .. }));
            self.limited += u64::from(matches!(error, StoreError::LeaseLimit { .. }));
            return;
        }
        for (part, lease) in batch.parts().filter_map(|part| Some((part, part.lease.as_ref()?))) {
            self.stored(&part.thread, lease);
        }
    }

    fn stored(&mut self, thread: &ThreadId, lease: &NewLease) {
        if let Some((now, groups)) = lease.entered() {
            let Self { held, claims, .. } = self;
            let is_live =
                |other: &ThreadId| held.get(other).is_some_and(|(_, until)| until.is_some_and(|until| until > now));
            self.wrong.extend(claims.note(thread, now, groups, is_live));
        } else if lease.releases || lease.claimed_at.is_some() {
            self.claims.left(thread);
        }
        let until = lease.expires_at.filter(|_| !lease.releases);
        let known = self.held.get(thread).cloned();
        match (known, lease.claimed_at) {
            (Some((owner, held_until)), _) if owner == lease.owner => {
                // A renewal that comes after the release takes nothing up.
                let until = if lease.releases { None } else { held_until.and(lease.expires_at.or(held_until)) };
                self.held.insert(thread.clone(), (owner, until));
            }
            (known, Some(now)) => {
                let left = known.and_then(|(owner, until)| Some((owner, until?)));
                if let Some((owner, until)) = left.as_ref().filter(|(_, until)| *until > now && lease.over.is_none()) {
                    self.wrong.push(format!("{thread}: claimed at {now} while {owner} has it until {until}"));
                }
                self.takeovers += u64::from(left.is_some());
                if !lease.releases || lease.over.is_some() {
                    self.held.insert(thread.clone(), (lease.owner.clone(), until));
                }
            }
            (Some((owner, _)), None) => {
                self.wrong
                    .push(format!("{thread}: a commit of {} is stored though {owner} has claimed it", lease.owner));
            }
            (None, None) => {}
        }
    }
}

//! Controls: planted faults of an engine or of a disk, which the cuts must find. A harness that does not is worth
//! nothing.

use annals::store::Synchronous;

use crate::cuts::{Counts, CutPlaces, CutReplay};
use crate::log::DiskOp;
use crate::trace::{Trace, WorkloadKind};

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceControl {
    /// Every fifth sync is left out.
    DroppedSync,
    /// A call is acknowledged when it begins.
    EarlyAck,
    /// The store is opened with `Synchronous::Normal`.
    NormalForFull,
    /// No sync does anything.
    LyingSync,
    /// Two successive syncs of different files come in the other order.
    SwappedSyncs,
    /// No sync of a compaction does anything.
    UnsyncedCompaction,
}

impl TraceControl {
    /// All of them, with their names.
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::DroppedSync, "dropped-sync"),
        (Self::EarlyAck, "early-ack"),
        (Self::NormalForFull, "normal-for-full"),
        (Self::LyingSync, "lying-sync"),
        (Self::SwappedSyncs, "swapped-syncs"),
        (Self::UnsyncedCompaction, "unsynced-compaction"),
    ];

    fn synchronous(self) -> Synchronous {
        if self == Self::NormalForFull { Synchronous::Normal } else { Synchronous::Full }
    }

    /// Returns whether the fault can occur in workloads of a kind.
    fn concerns(self, kind: WorkloadKind) -> bool {
        match self {
            Self::UnsyncedCompaction => kind == WorkloadKind::Compaction,
            _ => true,
        }
    }

    /// Plants the fault into a trace.
    fn plant(self, trace: &mut Trace) {
        let spans = trace.spans();
        let ops = std::mem::take(&mut trace.ops);
        trace.ops = match self {
            Self::NormalForFull => ops,
            Self::LyingSync => ops.into_iter().filter(|op| !matches!(op, DiskOp::Sync { .. })).collect(),
            Self::DroppedSync => {
                let mut syncs = 0;
                let stays = |op: &DiskOp| {
                    syncs += u64::from(matches!(op, DiskOp::Sync { .. }));
                    !matches!(op, DiskOp::Sync { .. }) || syncs % 5 != 0
                };
                ops.into_iter().filter(stays).collect()
            }
            Self::UnsyncedCompaction => {
                let is_left_out = |(at, op): &(usize, DiskOp)| {
                    matches!(op, DiskOp::Sync { .. }) && spans.iter().any(|span| span.contains(at))
                };
                ops.into_iter().enumerate().filter(|op| !is_left_out(op)).map(|(_, op)| op).collect()
            }
            Self::EarlyAck => early(ops),
            Self::SwappedSyncs => swapped(ops),
        };
        trace.index();
    }
}

fn early(ops: Vec<DiskOp>) -> Vec<DiskOp> {
    let acknowledged: Vec<(u8, u32)> = ops
        .iter()
        .filter_map(|op| match op {
            DiskOp::Ack { process, fact } => Some((*process, *fact)),
            _ => None,
        })
        .collect();
    let with_ack = |op: DiskOp| {
        let ack = match op {
            DiskOp::Begin { process, fact } if acknowledged.contains(&(process, fact)) => {
                Some(DiskOp::Ack { process, fact })
            }
            _ => None,
        };
        std::iter::once(op).chain(ack)
    };
    ops.into_iter().filter(|op| !matches!(op, DiskOp::Ack { .. })).flat_map(with_ack).collect()
}

fn swapped(mut ops: Vec<DiskOp>) -> Vec<DiskOp> {
    let mut last: Option<usize> = None;
    for at in 0..ops.len() {
        let DiskOp::Sync { ino, .. } = ops[at] else { continue };
        last = match last {
            Some(before) if !matches!(ops[before], DiskOp::Sync { ino: other, .. } if other == ino) => {
                ops.swap(before, at);
                None
            }
            _ => Some(at),
        };
    }
    ops
}

/// The result of a control.
#[derive(Clone, Debug)]
pub(crate) struct ControlResult {
    pub(crate) name: &'static str,
    /// The number of cuts until the fault was found, `None` if it was not.
    pub(crate) found_after: Option<u64>,
    pub(crate) counts: Counts,
}

/// Runs a control until its fault is found, or for `cuts` cuts. The workloads are those of seeds from `seed` on.
pub(crate) fn run(
    (control, name): (TraceControl, &'static str),
    seed: u64,
    cuts: u64,
    per_trace: usize,
) -> Result<ControlResult, String> {
    let mut counts = Counts::default();
    let mut found_after = None;
    for seed in (seed..).filter(|seed| control.concerns(WorkloadKind::of(*seed))) {
        if counts.run >= cuts || found_after.is_some() {
            break;
        }
        let mut trace = Trace::record(seed, control.synchronous())?;
        control.plant(&mut trace);
        let mut replay = CutReplay::new(&trace, seed, Some(name))?;
        replay.run(CutPlaces::Random(per_trace))?;
        counts.add(replay.counts);
        if counts.bad() > 0 {
            found_after = Some(counts.run);
        }
    }
    Ok(ControlResult { name, found_after, counts })
}

//! Controls: planted faults of an engine or of a disk, which the cuts must find. A harness that does not is worth nothing.

use annals::store::Synchronous;

use crate::cuts::{Counts, Replay};
use crate::log::Op;
use crate::trace::Trace;

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
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
}

impl Control {
    /// All of them, with their names.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::DroppedSync, "dropped-sync"),
        (Self::EarlyAck, "early-ack"),
        (Self::NormalForFull, "normal-for-full"),
        (Self::LyingSync, "lying-sync"),
        (Self::SwappedSyncs, "swapped-syncs"),
    ];

    fn synchronous(self) -> Synchronous {
        if self == Self::NormalForFull { Synchronous::Normal } else { Synchronous::Full }
    }

    /// Plants the fault into a trace.
    fn plant(self, trace: &mut Trace) {
        let ops = std::mem::take(&mut trace.ops);
        trace.ops = match self {
            Self::NormalForFull => ops,
            Self::LyingSync => ops.into_iter().filter(|op| !matches!(op, Op::Sync { .. })).collect(),
            Self::DroppedSync => {
                let mut syncs = 0;
                let stays = |op: &Op| {
                    syncs += u64::from(matches!(op, Op::Sync { .. }));
                    !matches!(op, Op::Sync { .. }) || syncs % 5 != 0
                };
                ops.into_iter().filter(stays).collect()
            }
            Self::EarlyAck => early(ops),
            Self::SwappedSyncs => swapped(ops),
        };
        trace.index();
    }
}

fn early(ops: Vec<Op>) -> Vec<Op> {
    let acknowledged: Vec<(u8, u32)> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Ack { process, fact } => Some((*process, *fact)),
            _ => None,
        })
        .collect();
    let with_ack = |op: Op| {
        let ack = match op {
            Op::Begin { process, fact } if acknowledged.contains(&(process, fact)) => Some(Op::Ack { process, fact }),
            _ => None,
        };
        std::iter::once(op).chain(ack)
    };
    ops.into_iter().filter(|op| !matches!(op, Op::Ack { .. })).flat_map(with_ack).collect()
}

fn swapped(mut ops: Vec<Op>) -> Vec<Op> {
    let mut last: Option<usize> = None;
    for at in 0..ops.len() {
        let Op::Sync { ino, .. } = ops[at] else { continue };
        last = match last {
            Some(before) if !matches!(ops[before], Op::Sync { ino: other, .. } if other == ino) => {
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
    (control, name): (Control, &'static str),
    seed: u64,
    cuts: u64,
    per_trace: usize,
) -> Result<ControlResult, String> {
    let mut counts = Counts::default();
    let mut found_after = None;
    for seed in seed.. {
        if counts.run >= cuts || found_after.is_some() {
            break;
        }
        let mut trace = Trace::record(seed, control.synchronous())?;
        control.plant(&mut trace);
        let mut replay = Replay::new(&trace, seed, Some(name))?;
        replay.run(per_trace)?;
        counts.add(replay.counts);
        if counts.bad() > 0 {
            found_after = Some(counts.run);
        }
    }
    Ok(ControlResult { name, found_after, counts })
}

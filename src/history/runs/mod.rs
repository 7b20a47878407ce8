//! The control of runs: their queue, leases, signals, interrupts and steps.
//!
//! *Absent:* the executor.

pub(crate) mod control;
pub(crate) mod interrupts;
pub(crate) mod lease;
pub(crate) mod queue;
pub(crate) mod signal;
pub(crate) mod steps;

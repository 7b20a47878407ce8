//! The end of the process from outside: Ctrl-C, SIGTERM, and the time of `--timeout`.
//!
//! Invariant: a commit is whole or absent, whenever the process ends. A run of a workflow is cancelled first, so that
//! its commands end with it and their results are stored; the second signal ends the process at once. A worker is
//! drained by the first signal, cancelled by the second, and ended by the third.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use annals_graph::task::RunControl;

use crate::errors::CommandFailure;
use crate::output;
use crate::progress;

/// The exit code of a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// The exit code of a process that SIGTERM ended.
const TERMINATED: u8 = 143;
/// The exit code of a process whose time is over.
const TIMED_OUT: u8 = 5;

/// The exit code with which the process was asked to end; 0 while it was not.
static ASKED: AtomicU8 = AtomicU8::new(0);
/// The number of requests so far.
static REQUESTS: AtomicU8 = AtomicU8::new(0);
/// True if the first request drains the runs of this process.
static DRAINS: AtomicBool = AtomicBool::new(false);
/// True while a pager shows the output: Ctrl-C is for the pager then.
static IS_PAGED: AtomicBool = AtomicBool::new(false);
/// The control of the run of this process.
static RUN: OnceLock<RunControl> = OnceLock::new();

/// Leaves Ctrl-C to a pager.
pub(crate) fn leave_to_pager() {
    IS_PAGED.store(true, Ordering::Relaxed);
}

/// Returns the control by which this process cancels its run.
pub(crate) fn control() -> RunControl {
    RUN.get_or_init(RunControl::new).clone()
}

/// Returns the control by which this process drains its runs at the first request, and cancels them at the second.
pub(crate) fn draining_control() -> RunControl {
    DRAINS.store(true, Ordering::Relaxed);
    control()
}

/// Returns whether the time of `--timeout` is over.
pub(crate) fn is_timed_out() -> bool {
    ASKED.load(Ordering::Acquire) == TIMED_OUT
}

/// Returns the failure of a command that was asked to end; `None` if it was not.
pub(crate) fn failure(timeout: Option<Duration>) -> Option<CommandFailure> {
    let exit = ASKED.load(Ordering::Acquire);
    let hint = "what was committed stays; repeat the command to go on";
    match exit {
        0 => None,
        TIMED_OUT => {
            let message = format!("the command did not end within {:?}", timeout.unwrap_or_default());
            Some(CommandFailure::new(exit, "timed_out", message).hint(hint))
        }
        exit => Some(CommandFailure::new(exit, "interrupted", "the command was interrupted").hint(hint)),
    }
}

/// Ends the process, or its run if there is one.
fn end(exit: u8, timeout: Option<Duration>, json: bool) {
    ASKED.store(exit, Ordering::Release);
    let requests = REQUESTS.fetch_add(1, Ordering::AcqRel);
    match (RUN.get(), DRAINS.load(Ordering::Relaxed), requests) {
        (Some(run), true, 0) => {
            run.request_drain("interrupted");
            output::note("ends when the steps that run have ended; Ctrl-C again kills their commands");
            return;
        }
        (Some(run), false, 0) | (Some(run), true, 1) => return run.cancel("interrupted"),
        _ => {}
    }
    progress::clear();
    if exit == TIMED_OUT
        && let Some(failure) = failure(timeout)
    {
        _ = failure.report(json);
    }
    // Transactions that are open are rolled back by the next process that opens the store.
    std::process::exit(i32::from(exit));
}

/// Watches for signals, and for the end of the time.
pub(crate) fn watch(timeout: Option<Duration>, json: bool) {
    if let Some(time) = timeout {
        std::thread::spawn(move || {
            std::thread::sleep(time);
            end(TIMED_OUT, timeout, json);
        });
    }
    signals(json);
}

#[cfg(unix)]
fn signals(json: bool) {
    use signal_hook::consts::{SIGINT, SIGTERM};
    // Without the handler a signal ends the process as it always did.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        for signal in &mut signals {
            match signal {
                SIGINT if IS_PAGED.load(Ordering::Relaxed) => {}
                SIGINT => end(INTERRUPTED, None, json),
                _ => end(TERMINATED, None, json),
            }
        }
    });
}

#[cfg(not(unix))]
fn signals(_: bool) {}

//! The text of a caught panic.

use std::any::Any;

/// The beginning of the panic of Tokio's timers and sockets on a thread that is in no runtime.
const NO_REACTOR: &str = "there is no reactor running";
/// The remedy.
const REMEDY: &str = "with the feature `tokio` of annals-graph a task runs in the runtime of its caller: call ainvoke or \
                      arun_until in one, or enter it with `let _inside = runtime.enter();`";

/// Returns the message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into());
    if text.starts_with(NO_REACTOR) { format!("{text}; {REMEDY}") } else { text }
}

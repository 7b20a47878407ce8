//! The extension module of the Python package `annals`.
//!
//! The classes here are thin: each holds a handle or a record of the engine, and turns values and errors into objects
//! of Python. Their documentation is in `_annals.pyi`.
//!
//! Invariants: no class changes after it is made, but for an iterator and a put, which have a lock. The global lock of
//! the interpreter is released around every call that may touch the disk; a lock of this crate is waited for without
//! it. The saver compares live objects while it holds that lock, so the module needs it: a free-threaded interpreter
//! enables it when the module is imported, and warns.

mod cache;
mod diff;
mod errors;
mod html;
mod iterators;
mod kv;
mod records;
mod saver;
mod snapshot;
mod store;
mod thread;
mod values;

use pyo3::prelude::*;

/// Runs the command `annals` with these arguments, of which the first is the name of the program.
#[pyfunction]
fn run_command(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| annals_cli::run_command(arguments))
}

/// The classes and functions of the package.
#[pymodule(gil_used = true)]
mod _annals {
    #[pymodule_export]
    use crate::cache::PyCache;
    #[pymodule_export]
    use crate::diff::PyDiff;
    #[pymodule_export]
    use crate::iterators::PyReadIterator;
    #[pymodule_export]
    use crate::kv::{PyKv, PyKvItem};
    #[pymodule_export]
    use crate::records::{
        PyBlame, PyCheckReport, PyOperation, PySearchHit, PyTextChange, PyThreadInfo, PyValueVersion,
    };
    #[pymodule_export]
    use crate::run_command;
    #[pymodule_export]
    use crate::saver::{_end_wakes, PyListing, PyPut, PySaver};
    #[pymodule_export]
    use crate::snapshot::PySnapshot;
    #[pymodule_export]
    use crate::store::{PyManualClock, PyStore, PyTable};
    #[pymodule_export]
    use crate::thread::{PyHistory, PyThread};
    #[pymodule_export]
    use crate::values::PyExtension;
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

//! Failures, their exit codes and their messages.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | ok; also when the reader of stdout has closed it |
//! | 1 | a negative result: differences with `--exit-code`, an empty list or import, a workflow that waits |
//! | 2 | usage: arguments, an ambiguous id |
//! | 3 | a thread, checkpoint, channel, folder or store file does not exist |
//! | 4 | the file is damaged, not a store, or its schema was changed by another program |
//! | 5 | another process is writing, or won the race, or the time of `--timeout` is over |
//! | 6 | the file has a newer format |
//! | 7 | refused without `--yes` |
//! | 70 | internal: the disk, a bug |
//! | 130, 143 | ended by Ctrl-C, by SIGTERM |

use std::io::{self, Write};

use annals::store::{SchemaChange, StoreError};
use annals_graph::ErrorKind;
use serde_json::json;

use crate::output::{escape, json_text, safe_lines};
use crate::progress;

/// The failure of a command.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// The reader of stdout has closed it. The exit code is 0.
    Closed,
    Error {
        exit: u8,
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
}

impl CommandFailure {
    pub(crate) fn new(exit: u8, code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(matches!(exit, 1..=7 | 70 | 130 | 143), "{exit} is not a documented exit code");
        Self::Error { exit, code, message: message.into(), hint: None }
    }

    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(3, code, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(2, "usage", message)
    }

    /// Adds a hint for the user.
    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Error { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// Prints the failure on stderr and returns the exit code.
    pub(crate) fn report(self, json: bool) -> u8 {
        let Self::Error { exit, code, message, hint } = self else { return 0 };
        print_error(json, code, &message, hint.as_deref());
        exit
    }
}

/// Writes an error to stderr. A closed stderr does not change the exit code.
fn print_error(json: bool, code: &str, message: &str, hint: Option<&str>) {
    progress::clear();
    let mut err = io::stderr().lock();
    _ = if json {
        let error = json!({ "error": { "code": code, "message": message, "hint": hint } });
        writeln!(err, "{}", json_text(&error))
    } else {
        let hint = hint.map(|hint| format!("\nhint: {}", escape(hint))).unwrap_or_default();
        // The message about a workflow shows lines of its file.
        let lines: Vec<String> = safe_lines(message).collect();
        let message = if code == "workflow" { lines.join("\n") } else { escape(message).into_owned() };
        writeln!(err, "annals: {message}{hint}")
    };
}

/// Prints the output of clap: help and version as data, all else as an error.
pub(crate) fn usage(error: &clap::Error, json: bool) -> u8 {
    if !error.use_stderr() {
        _ = error.print();
        return 0;
    }
    // The text repeats arguments, which are data.
    let text = error.render().to_string();
    if json {
        let what = text.split("\n\nUsage").next().unwrap_or_default().trim_start_matches("error: ");
        let message = what.split_whitespace().collect::<Vec<_>>().join(" ");
        print_error(true, "usage", &message, Some("annals --help lists the commands"));
    } else {
        let mut err = io::stderr().lock();
        safe_lines(&text).for_each(|line| _ = writeln!(err, "{line}"));
    }
    2
}

impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::new(70, "io", error.to_string()),
        }
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        annals_graph::Error::from(error).into()
    }
}

impl From<annals::Error> for CommandFailure {
    fn from(error: annals::Error) -> Self {
        annals_graph::Error::from(error).into()
    }
}

impl From<annals_graph::Error> for CommandFailure {
    fn from(error: annals_graph::Error) -> Self {
        use StoreError as E;
        let (exit, code) = match (error.kind(), error.as_store()) {
            (_, Some(E::Ambiguous { .. } | E::AmbiguousThread { .. })) => (2, "ambiguous"),
            (_, Some(E::InvalidPoint { .. })) => (2, "invalid_point"),
            (_, Some(E::Id(_))) => (2, "invalid_id"),
            (_, Some(E::NotAStore { .. })) => (4, "not_a_store"),
            (_, Some(E::Codec(_))) | (ErrorKind::Corrupt, _) => (4, "corrupt"),
            (_, Some(E::ForeignLog { .. })) => (4, "foreign_log"),
            (_, Some(E::LogMissing { .. })) => (4, "log_missing"),
            (_, Some(E::KeyRequired { .. })) => (2, "key_required"),
            (_, Some(E::WrongKey { .. })) => (2, "wrong_key"),
            (_, Some(E::NotKeyed { .. })) => (2, "not_keyed"),
            (_, Some(E::ThreadNotFound { .. })) => (3, "thread_not_found"),
            (_, Some(E::InterruptNotOpen { .. })) => (3, "interrupt_not_open"),
            (_, Some(E::ThreadEnded { .. })) => (2, "thread_ended"),
            (_, Some(E::CheckpointNotFound { .. })) => (3, "checkpoint_not_found"),
            (ErrorKind::NotFound, _) => (3, "not_found"),
            (ErrorKind::Conflict, _) => (5, "conflict"),
            (ErrorKind::Busy, _) => (5, "busy"),
            (ErrorKind::SchemaChanged, _) => (4, "schema_changed"),
            (ErrorKind::NewerFormat, _) => (6, "newer_format"),
            (ErrorKind::UnreleasedFormat, _) => (6, "unreleased_format"),
            (ErrorKind::OutcomeUnknown, _) => (70, "outcome_unknown"),
            (ErrorKind::Io, _) => (70, "io"),
            (ErrorKind::User, _) => (70, "node_failed"),
            (ErrorKind::Limit, _) => (70, "limit"),
            (ErrorKind::Invalid, _) => (2, "invalid"),
            _ => (70, "internal"),
        };
        let failure = Self::new(exit, code, error.to_string());
        match code {
            "ambiguous" => failure.hint("give more characters of the id"),
            "checkpoint_not_found" => failure.hint("annals log THREAD lists the checkpoints"),
            "key_required" | "wrong_key" => failure.hint("name its key with --key-file FILE, or set ANNALS_KEY_FILE"),
            "not_keyed" => failure.hint("leave out --key-file and ANNALS_KEY_FILE"),
            "busy" => failure.hint("repeat the command when the other process is done"),
            "newer_format" => failure.hint("a newer annals reads it"),
            "schema_changed" => match error.as_store() {
                Some(E::SchemaChanged { statement: Some(statement), .. }) => failure.hint(statement.as_str()),
                Some(E::SchemaChanged { change: SchemaChange::Missing | SchemaChange::Differs, .. }) => {
                    failure.hint("annals doctor --fix makes it anew")
                }
                _ => failure,
            },
            "corrupt" => failure.hint("the file was not changed; copy it before any repair"),
            _ => failure,
        }
    }
}

//! Notifications: commands that tell a person that a run asks or has failed.
//!
//! Invariant: a notification changes no run; it is called after the commits of the run are stored. A process calls a
//! command once for an interrupt of a thread. *Absent:* the memory of other processes: one that continues a run while
//! an interrupt is open calls the command again.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use annals_graph::task::Interrupt;
use annals_graph::{RunEnd, RunEvent, RunEventKind};
use serde_json::json;

use crate::expression::text_of;
use crate::limits::{NOTIFIED_MAX, NOTIFY_TIMEOUT};
use crate::process::{CommandWatch, ReadyCommand, shown};
use crate::secrets::{RedactPattern, SecretSource};
use crate::spec::NotifySpec;

type NotifyErrorListener = Box<dyn Fn(&str) + Send + Sync>;

/// The notifications of a workflow.
pub(crate) struct NotifyCommands {
    spec: NotifySpec,
    folder: PathBuf,
    /// The secrets that the commands get as variables.
    secrets: Vec<String>,
    patterns: Arc<[RedactPattern]>,
    source: Arc<SecretSource>,
    /// The interrupts of threads for which the command was called.
    notified: Mutex<HashSet<(String, String)>>,
    on_error: OnceLock<NotifyErrorListener>,
}

impl NotifyCommands {
    /// Makes the notifications of a workflow; `None` if it has none.
    pub(crate) fn new(
        spec: NotifySpec,
        folder: PathBuf,
        secrets: Vec<String>,
        patterns: Arc<[RedactPattern]>,
        source: Arc<SecretSource>,
    ) -> Option<Arc<Self>> {
        if spec.ask.is_none() && spec.failure.is_none() {
            return None;
        }
        let (notified, on_error) = (Mutex::default(), OnceLock::new());
        Some(Arc::new(Self { spec, folder, secrets, patterns, source, notified, on_error }))
    }

    /// Sets the function that is told why a command failed; the first call counts.
    pub(crate) fn on_error(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.on_error.set(Box::new(listener));
    }

    /// Calls the command for an event of a run, if it has one.
    pub(crate) fn handle(&self, event: &RunEvent) {
        let thread = event.thread.as_ref().map(|thread| thread.as_str()).unwrap_or_default();
        match &event.kind {
            RunEventKind::Waiting { interrupts, .. } => {
                for open in interrupts.iter().filter(|open| open.wake_at.is_none()) {
                    if self.is_new(thread, open) {
                        self.call(&self.spec.ask, event, thread, "ask", &text_of(&open.value));
                    }
                }
            }
            RunEventKind::Ended { outcome: RunEnd::Failed, error: Some(error) } | RunEventKind::Stuck { error } => {
                self.call(&self.spec.failure, event, thread, "failure", error);
            }
            _ => {}
        }
    }

    fn is_new(&self, thread: &str, open: &Interrupt) -> bool {
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        if notified.len() >= NOTIFIED_MAX {
            // Those of runs that have ended since are most of them.
            notified.clear();
        }
        notified.insert((thread.to_owned(), open.id.clone()))
    }

    fn call(&self, argv: &Option<Vec<String>>, event: &RunEvent, thread: &str, word: &str, text: &str) {
        let Some(argv) = argv.clone() else { return };
        let program = argv.first().cloned().unwrap_or_default();
        if let Err(error) = self.run(argv, event, thread, word, text)
            && let Some(listener) = self.on_error.get()
        {
            listener(&format!("the notification of {word} for thread {thread} failed: {program}: {error}"));
        }
    }

    fn run(&self, argv: Vec<String>, event: &RunEvent, thread: &str, word: &str, text: &str) -> Result<(), String> {
        let secrets = self.source.read(&self.secrets).map_err(|missing| missing.to_string())?;
        let secrets = secrets.with_patterns(&self.patterns);
        let text = secrets.redacted(text.replace('\0', " "));
        let document = json!({ "event": word, "workflow": &*event.graph, "thread": thread, "text": text });
        let variables = [
            ("ANNALS_EVENT", word.to_owned()),
            ("ANNALS_WORKFLOW", event.graph.to_string()),
            ("ANNALS_THREAD", thread.replace('\0', " ")),
            ("ANNALS_TEXT", text),
        ];
        let mut env: Vec<(String, String)> = variables.map(|(name, value)| (name.to_owned(), value)).into();
        env.extend(secrets.iter().cloned());
        let (folder, stdin) = (self.folder.clone(), document.to_string().into_bytes());
        let command = ReadyCommand { argv, env, folder, stdin, timeout: Some(NOTIFY_TIMEOUT) };
        let watch = CommandWatch { is_cancelled: &|| false, printed: &|_, _| (), most: 1 };
        let output = secrets.redacted_output(command.run(&watch)).map_err(|error| error.to_string())?;
        match output.status {
            0 => Ok(()),
            status => Err(format!("exit code {status}{}", shown(&output.stderr))),
        }
    }
}

impl fmt::Debug for NotifyCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifyCommands").field("spec", &self.spec).finish_non_exhaustive()
    }
}

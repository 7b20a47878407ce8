//! Reads the keys of a file that hold for its runs as a whole: `redact`, `notify` and `schedule`.

use annals_graph::annals::store::StoreError;
use annals_graph::{ClockChanges, MissedRuns, Schedule};

use super::{FlowParser, member};
use crate::limits::{REDACT_BYTES_MAX, REDACT_CHARS_MIN, REDACT_PATTERNS_MAX};
use crate::secrets::RedactPattern;
use crate::spec::NotifySpec;
use crate::tree::{FileValue, ValueKind};

const NOTIFY_KEYS: &[&str] = &["ask", "failure"];
const SCHEDULE_KEYS: &[&str] = &["every", "cron", "zone", "missed", "clock_changes"];
/// The policies for due times at which no worker ran, by their words.
const MISSED: &[(&str, MissedRuns)] =
    &[("skip", MissedRuns::Skip), ("last", MissedRuns::RunLast), ("all", MissedRuns::RunAll(u32::MAX))];
const CLOCK_CHANGES: &[(&str, ClockChanges)] = &[("once", ClockChanges::Once), ("as_shown", ClockChanges::AsShown)];

impl FlowParser<'_> {
    /// Reads the patterns of `redact`.
    pub(super) fn redact(&mut self, value: Option<&FileValue>) -> Vec<RedactPattern> {
        let mut patterns = Vec::new();
        for (text, span) in value.map(|value| self.reader.texts(value)).unwrap_or_default() {
            match RedactPattern::parse(&text).filter(|_| text.len() <= REDACT_BYTES_MAX) {
                Some(pattern) => patterns.push(pattern),
                None => {
                    let hint = format!(
                        "{REDACT_CHARS_MIN} characters or more, then `*` for the characters of a key, as in \"ghp_*\"; \
                         at most {REDACT_BYTES_MAX} bytes"
                    );
                    self.reader.problem(&span, format!("`{}` cannot be a pattern", text.escape_debug()), Some(hint));
                }
            }
        }
        if let Some(value) = value.filter(|_| patterns.len() > REDACT_PATTERNS_MAX) {
            self.reader.problem(&value.span, format!("there are more than {REDACT_PATTERNS_MAX} patterns"), None);
        }
        patterns
    }

    /// Reads the commands of `notify`.
    pub(super) fn notify(&mut self, value: Option<&FileValue>) -> NotifySpec {
        let Some(value) = value else { return NotifySpec::default() };
        let members = self.reader.known(value, NOTIFY_KEYS);
        if members.is_empty() {
            let hint = "notify = { ask = [\"notify-send\", \"annals\"] }";
            self.reader.problem(&value.span, "`notify` has no command", Some(hint.into()));
        }
        let mut words = |key| member(&members, key).and_then(|value| self.command(value));
        let (ask, failure) = (words("ask"), words("failure"));
        NotifySpec { ask, failure }
    }

    /// Reads a command whose words stand in the file: a list of words, or a text for `sh -c`.
    fn command(&mut self, value: &FileValue) -> Option<Vec<String>> {
        match &value.kind {
            ValueKind::List(items) if items.is_empty() => {
                self.reader.problem(&value.span, "the command is empty", None);
                None
            }
            ValueKind::List(_) => Some(self.reader.texts(value).into_iter().map(|(word, _)| word).collect()),
            _ => self.reader.text(value).map(|script| ["sh".to_owned(), "-c".to_owned(), script].into()),
        }
    }

    /// Reads `schedule`, which has the name of the workflow.
    pub(super) fn schedule(&mut self, value: Option<&FileValue>, name: &str) -> Option<Schedule> {
        let value = value?;
        let members = self.reader.known(value, SCHEDULE_KEYS);
        let get = |key| member(&members, key);
        let (made, at) = match (get("every"), get("cron")) {
            (Some(every), None) => (Schedule::every(name, name, self.reader.duration(every)?), every),
            (None, Some(cron)) => (Schedule::new(name, name, self.reader.text(cron)?), cron),
            _ => {
                let hint = "schedule = { every = \"1h\" }, or { cron = \"30 2 * * *\", zone = \"Europe/Zurich\" }";
                self.reader.problem(&value.span, "a schedule has either `every` or `cron`", Some(hint.into()));
                return None;
            }
        };
        let mut schedule = self.valid(made, at)?;
        for key in ["zone", "clock_changes"] {
            if let Some(given) = get(key).filter(|_| get("cron").is_none()) {
                self.reader.problem(&given.span, format!("`{key}` belongs to `cron`"), None);
                return None;
            }
        }
        if let Some(missed) = get("missed") {
            schedule = schedule.missed(self.reader.word(missed, MISSED)?);
        }
        if let Some(zone) = get("zone") {
            let named = self.reader.text(zone)?;
            schedule = self.valid(schedule.zone(named), zone)?;
        }
        if let Some(changes) = get("clock_changes") {
            let policy = self.reader.word(changes, CLOCK_CHANGES)?;
            schedule = self.valid(schedule.clock_changes(policy), changes)?;
        }
        Some(schedule)
    }

    fn valid(&mut self, made: Result<Schedule, StoreError>, at: &FileValue) -> Option<Schedule> {
        match made {
            Ok(schedule) => Some(schedule),
            Err(error) => {
                self.reader.problem(&at.span, error.to_string(), Some("docs/flows.md describes schedules".into()));
                None
            }
        }
    }
}

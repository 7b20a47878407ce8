//! Writing one session: the lines that are not stored yet, the main line last, so that the head ends on it.
//!
//! Invariant: a checkpoint that is stored is not changed; a line that the program rewrote is stored beside the old one.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals::base::limits::FACT_BYTES_MAX;
use annals::base::{CheckpointId, Encoded, IdSource, Namespace, Payload, Timestamp, Value};
use annals::history::{FoldedMessages, Snapshot, Thread};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent};
use annals::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use annals::store::{ItemRange, Source, Store, StoreError};
use serde_json::json;

use super::lines::{StoredLine, stored_lines};
use super::pending::NewThread;
use super::{FACTS, ImportSummary, MESSAGES, thread_id};
use crate::arena::fnv;
use crate::error::ImportError;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_CHECKPOINTS_MAX};
use crate::model::{ParentLink, SessionMessage, SourceSession, folded, is_summary, turns};

/// The first words of the name of a branch that the program has left.
const BRANCH: &str = "left at ";

/// Writes a session.
pub(super) fn write(store: &Store, session: &SourceSession, summary: &mut ImportSummary) -> Result<(), ImportError> {
    let mut writer = SessionWriter::new(store, session)?;
    let is_new = writer.begin()?;
    for branch in &session.branches {
        let line: Vec<_> = session.main[..branch.after].iter().chain(&branch.messages).cloned().collect();
        writer.line(&line, branch.after)?;
    }
    let end = writer.line(&session.main, session.main.len())?;
    writer.finish(end)?;
    summary.checkpoints += writer.checkpoints;
    summary.messages += writer.messages;
    match (is_new, writer.checkpoints) {
        (true, _) => summary.threads_new += 1,
        (false, 0) => summary.threads_unchanged += 1,
        (false, _) => summary.threads_grown += 1,
    }
    Ok(())
}

/// The outcome of writing a new thread.
pub(super) enum NewThreadOutcome {
    /// The thread is a batch that was not handed over.
    Pending(Box<NewThread>),
    Stored,
}

/// Returns whether the main line of a session begins with messages of its parent.
pub(super) fn is_fork(session: &SourceSession) -> bool {
    matches!(session.parent, Some(ParentLink::Fork { messages: 1.., .. }))
}

/// Makes the batch of a session without branches that has no thread yet. A session that is too large for one batch is
/// stored at once.
pub(super) fn new_thread(
    store: &Store,
    session: &SourceSession,
    summary: &mut ImportSummary,
) -> Result<NewThreadOutcome, ImportError> {
    debug_assert!(session.branches.is_empty() && !is_fork(session), "the session has one line of its own");
    let mut writer = SessionWriter::new(store, session)?;
    let id = writer.first(None)?;
    let mut start = LineStart { id, step: 0, version: 0, position: 0 };
    let mut from = 0;
    for end in writer.ends(&session.main, session.main.len(), 0) {
        writer.turn(&mut start, &session.main[..end], from)?;
        from = end;
    }
    let (checkpoints, messages) = (writer.checkpoints, writer.messages);
    match writer.batch.take() {
        Some(mut batch) if !writer.is_begun => {
            batch.operation = Some(writer.facts_operation());
            let (source, session, bytes) = (session.source, session.id.clone(), writer.batch_bytes);
            Ok(NewThreadOutcome::Pending(Box::new(NewThread { source, session, batch, bytes, checkpoints, messages })))
        }
        batch => {
            writer.batch = batch;
            writer.flush()?;
            writer.title()?;
            summary.checkpoints += checkpoints;
            summary.messages += messages;
            summary.threads_new += 1;
            Ok(NewThreadOutcome::Stored)
        }
    }
}

/// A checkpoint from which a line goes on.
#[derive(Clone)]
struct LineStart {
    id: CheckpointId,
    step: i64,
    /// The version of the list of messages.
    version: u64,
    /// The position of the next message.
    position: u64,
}

struct SessionWriter<'a> {
    store: &'a Store,
    thread: Thread,
    session: &'a SourceSession,
    ids: IdSource,
    lines: Vec<StoredLine>,
    batch: Option<Batch>,
    batch_bytes: usize,
    /// True after a batch of the thread was committed.
    is_begun: bool,
    /// The head of the thread, pending checkpoints included.
    head: Option<CheckpointId>,
    /// The greatest id of the thread.
    newest: Option<CheckpointId>,
    checkpoints: u64,
    messages: u64,
}

impl<'a> SessionWriter<'a> {
    fn new(store: &'a Store, session: &'a SourceSession) -> Result<Self, ImportError> {
        let id = thread_id(session.source, &session.id);
        Ok(Self {
            store,
            thread: store.thread(&id).map_err(|error| message_error(session, error))?,
            session,
            ids: IdSource::from_seed(fnv(id.as_bytes())),
            lines: Vec::new(),
            batch: None,
            batch_bytes: 0,
            is_begun: false,
            head: None,
            newest: None,
            checkpoints: 0,
            messages: 0,
        })
    }

    /// Makes the thread with the facts of the session, or reads it. Returns whether it is new.
    fn begin(&mut self) -> Result<bool, ImportError> {
        let facts = facts(self.session);
        if let Some(head) = self.thread.head()? {
            self.lines = stored_lines(&self.thread, true)?;
            self.head = Some(head.id());
            self.newest = self.lines.iter().flat_map(|line| &line.points).map(|(_, id)| *id).max();
            if head.get(FACTS)?.as_ref() != Some(&facts) {
                // The facts have changed: a checkpoint of their own on the line of the head.
                let start = self.start(head.id())?;
                let version = channel_version(&head, FACTS)? + 1;
                let (at, parent) = (self.time(None), Some(Parent::Local(start.id)));
                let count = self.lines.first().map_or(0, |line| line.messages.len());
                let id = self.push(parent, start.step + 1, at, &[], count, |checkpoint| {
                    checkpoint.changes.push(facts_change(&facts, version)?);
                    Ok(())
                })?;
                if let Some(line) = self.lines.first_mut() {
                    line.points.push((line.messages.len(), id));
                }
                self.title()?;
            }
            return Ok(false);
        }
        let parent = self.parent_point()?;
        let (count, messages) = match &parent {
            Some((line, count, _)) => (*count, line.messages[..*count].to_vec()),
            None => (0, Vec::new()),
        };
        let id = self.first(parent.as_ref().map(|(_, count, snapshot)| (*count, snapshot)))?;
        self.lines.push(StoredLine { messages, points: vec![(count, id)], is_head: true });
        self.flush()?;
        self.title()?;
        Ok(true)
    }

    /// Adds the first checkpoint, which holds the facts: of a fork on that of its parent, where the line has a number
    /// of messages.
    fn first(&mut self, parent: Option<(usize, &Snapshot)>) -> Result<CheckpointId, ImportError> {
        let facts = facts(self.session);
        let at = self.session.created_at.unwrap_or_else(|| self.time(self.session.main.first()));
        let (source, step, count, version) = match parent {
            Some((count, snapshot)) => {
                (Source::Fork, snapshot.step() + 1, count, channel_version(snapshot, FACTS)? + 1)
            }
            None => (Source::Update, 0, 0, 1),
        };
        // The id of a fork is greater than that of its parent.
        self.newest = parent.map(|(_, snapshot)| snapshot.id());
        let from = parent.map(|(_, snapshot)| Parent::Fork(snapshot.point().clone()));
        self.push(from, step, at, &[], count, |checkpoint| {
            checkpoint.source = source;
            checkpoint.changes.push(facts_change(&facts, version)?);
            Ok(())
        })
    }

    /// Returns the checkpoint of the parent at which a fork begins, with its line and the number of messages there.
    fn parent_point(&self) -> Result<Option<(StoredLine, usize, Snapshot)>, ImportError> {
        let Some(ParentLink::Fork { id, messages }) = &self.session.parent else { return Ok(None) };
        let thread = self
            .store
            .thread(thread_id(self.session.source, id))
            .map_err(|error| message_error(self.session, error))?;
        if *messages == 0 || thread.id() == self.thread.id() || thread.head()?.is_none() {
            return Ok(None);
        }
        let main = || self.session.main[..*messages].iter().map(|message| &message.message);
        let mut best: Option<(StoredLine, usize, CheckpointId)> = None;
        for line in stored_lines(&thread, true)? {
            let shared = line.shared(main());
            if let Some((count, point)) = line.point_before(shared)
                && best.as_ref().is_none_or(|(_, of_best, _)| count > *of_best)
            {
                best = Some((line, count, point));
            }
        }
        match best.filter(|(_, count, _)| *count > 0) {
            Some((line, count, point)) => Ok(Some((line, count, thread.at(point)?))),
            None => Ok(None),
        }
    }

    /// Returns the title as a fact of the thread. One that is too long for a fact is cut; the channel of the facts of
    /// the session holds the whole.
    fn short_title(&self) -> Option<String> {
        self.session.title.as_deref().map(|title| {
            let end = (0..=title.len().min(FACT_BYTES_MAX)).rev().find(|end| title.is_char_boundary(*end));
            title[..end.unwrap_or(0)].replace('\0', "\u{fffd}")
        })
    }

    /// Returns the operation that states the title and the label of a new thread.
    fn facts_operation(&self) -> NewOperation {
        let mut operation = NewOperation::new(OperationKind::Facts, self.store.now());
        operation.actor = self.thread.actor().map(str::to_owned);
        let labels = json!([self.session.source.name()]).to_string();
        for (name, text) in [("title", self.short_title()), ("labels", Some(labels))] {
            let Some(text) = text else { continue };
            let (id, field) = (self.thread.id().clone(), OperationField::Fact(name.to_owned()));
            let after = Some(OperationValue::Text(text));
            operation.changes.push(OperationChange::new(id, Namespace::root(), field, None, after));
        }
        operation
    }

    fn title(&self) -> Result<(), ImportError> {
        let current = self.thread.info()?.title().map(str::to_owned);
        let label = self.session.source.name();
        match self.short_title() {
            Some(title) if Some(&title) != current.as_ref() => self.thread.facts().title(&title).label(label).save()?,
            _ => self.thread.facts().label(label).save()?,
        }
        Ok(())
    }

    /// Stores the part of a line that is not stored yet. `shared` counts the messages that are those of the main line.
    /// Returns the checkpoint at its end.
    fn line(&mut self, line: &[Arc<SessionMessage>], shared: usize) -> Result<Option<CheckpointId>, ImportError> {
        let messages = || line.iter().map(|message| &message.message);
        let mut best: Option<(usize, usize, CheckpointId)> = None;
        for (number, stored) in self.lines.iter().enumerate() {
            let found = stored.point_before(stored.shared(messages()));
            if let Some((count, point)) = found.filter(|(count, _)| best.is_none_or(|(_, of_best, _)| *count > of_best))
            {
                best = Some((number, count, point));
            }
        }
        let Some((number, count, point)) = best else { return Ok(None) };
        if count == line.len() {
            return Ok(Some(point));
        }
        let mut points = self.lines[number].points.clone();
        points.retain(|(of, id)| *of < count || *id == point);
        let mut start = self.start(point)?;
        let ends = self.ends(line, shared, count);
        debug_assert_eq!(ends.last(), Some(&line.len()), "a line ends in a checkpoint");
        let mut from = count;
        for end in ends {
            let id = self.turn(&mut start, &line[..end], from)?;
            points.push((end, id));
            from = end;
        }
        self.lines.push(StoredLine { messages: messages().cloned().collect(), points, is_head: false });
        Ok(Some(start.id))
    }

    /// Returns the numbers of messages at which a line has a checkpoint, after the first `from`.
    fn ends(&self, line: &[Arc<SessionMessage>], shared: usize, from: usize) -> BTreeSet<usize> {
        let shared = shared.min(line.len());
        let cut = |start: usize, part: &[Arc<SessionMessage>]| {
            let ends = turns(part).into_iter().scan(start, |end, turn| {
                *end += turn.len();
                Some(*end)
            });
            ends.collect::<BTreeSet<usize>>()
        };
        // Beyond the shared messages only the turns of the line itself count.
        let mut ends = cut(0, &self.session.main);
        ends.retain(|end| *end <= shared);
        ends.extend(cut(shared, &line[shared..]));
        ends.extend(self.session.branches.iter().map(|branch| branch.after).filter(|after| *after <= shared));
        ends.insert(line.len());
        ends.retain(|end| *end > from && *end <= line.len());
        ends
    }

    /// Stores the messages of a line from one on as one checkpoint. If a summary is among them, those before it are
    /// folded; the summary is a message of the list.
    fn turn(
        &mut self,
        start: &mut LineStart,
        line: &[Arc<SessionMessage>],
        from: usize,
    ) -> Result<CheckpointId, ImportError> {
        let (turn, count) = (&line[from..], line.len());
        let refused = |reason: String| ImportError::Message { session: self.session.id.clone(), reason };
        let mut payloads: Vec<Payload> = Vec::new();
        for message in turn {
            payloads.push(message.message.to_payload().map_err(|error| refused(error.to_string()))?);
        }
        let bytes: usize = payloads.iter().map(Payload::len).sum();
        if self.batch_bytes.saturating_add(bytes) > COMMIT_BYTES_MAX {
            self.flush()?;
        }
        self.batch_bytes += bytes;
        let put = |(position, payload)| ItemChange::new(position, ItemOp::Put(Data::New(payload)), None);
        let items: Vec<ItemChange> = (start.position..).zip(payloads).map(put).collect();
        let (version, at) = (start.version + 1, self.time(turn.last()));
        let has_summary = turn.iter().any(|message| is_summary(&message.message));
        // A program may have changed the list in the store, so that its positions are not the numbers of the messages.
        let folded = if has_summary { folded(line) } else { None };
        let folded = folded.and_then(|count| (start.position + count as u64).checked_sub(from as u64));
        let id = self.push(Some(Parent::Local(start.id)), start.step + 1, at, turn, count, |checkpoint| {
            checkpoint.changes.push(Change::new(MESSAGES, version, ChangeValue::Items(items)));
            checkpoint.changes.extend(folded.map(|end| folded_change(end, version)).transpose()?);
            Ok(())
        })?;
        *start = LineStart { id, step: start.step + 1, version, position: start.position + turn.len() as u64 };
        Ok(id)
    }

    /// Adds a checkpoint to the pending commit.
    fn push(
        &mut self,
        parent: Option<Parent>,
        step: i64,
        at: Timestamp,
        turn: &[Arc<SessionMessage>],
        count: usize,
        fill: impl FnOnce(&mut NewCheckpoint) -> Result<(), ImportError>,
    ) -> Result<CheckpointId, ImportError> {
        let id = self.ids.checkpoint(at, step, self.newest.as_ref());
        debug_assert!(self.newest.is_none_or(|newest| id > newest), "ids only go up");
        let mut checkpoint = NewCheckpoint::new(id, parent, step, Source::Update, at);
        let metadata = json!({ "imported": self.session.source.name(), "imported_messages": count });
        checkpoint.metadata = Some(metadata.to_string());
        fill(&mut checkpoint)?;
        let (thread, head) = (self.thread.id().clone(), self.head);
        let batch = self.batch.get_or_insert_with(|| Batch::new(thread, Namespace::root(), head));
        batch.checkpoints.push(checkpoint);
        let is_full = batch.checkpoints.len() >= COMMIT_CHECKPOINTS_MAX;
        (self.head, self.newest) = (Some(id), Some(id));
        self.checkpoints += 1;
        self.messages += turn.len() as u64;
        if is_full {
            self.flush()?;
        }
        Ok(id)
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.batch_bytes = 0;
        if let Some(batch) = self.batch.take() {
            self.is_begun = true;
            self.store.commit(&batch).map_err(|error| match error {
                error @ StoreError::Invalid { .. } => message_error(self.session, error),
                error => error.into(),
            })?;
        }
        Ok(())
    }

    /// Moves the head to the end of the main line, and names the branches. A head with messages that the source does
    /// not have stays: they were added in the store.
    fn finish(&mut self, end: Option<CheckpointId>) -> Result<(), ImportError> {
        self.flush()?;
        if let Some(end) = end.filter(|end| self.head_is_of_another_line(*end)) {
            let at = self.thread.at(end)?;
            self.thread.rewind_to(&at)?;
        }
        let mut wanted = Vec::new();
        for branch in &self.session.branches {
            let line = self.session.main[..branch.after].iter().chain(&branch.messages).map(|message| &message.message);
            let length = branch.after + branch.messages.len();
            let stored = self.lines.iter().find(|stored| stored.shared(line.clone()) == length);
            let point = stored.and_then(|stored| stored.points.iter().find(|(count, _)| *count == length));
            wanted.extend(point.map(|(_, point)| *point));
        }
        for branch in self.thread.branches()? {
            let point = branch.last.id();
            if wanted.contains(&point) {
                wanted.retain(|wanted| *wanted != point);
            } else if let Some(name) =
                branch.name.as_deref().filter(|name| name.starts_with(BRANCH) && !branch.is_current)
            {
                // The program no longer has the line, or it has grown.
                self.thread.remove_branch_name(name)?;
            }
        }
        for point in wanted {
            let at = self.thread.at(point)?;
            self.thread.name_branch_at(&format!("{BRANCH}{}", last_digits(point)), &at)?;
        }
        Ok(())
    }

    /// Returns whether the head has other messages than the checkpoint, all of which are of the session.
    fn head_is_of_another_line(&self, end: CheckpointId) -> bool {
        let Some(line) = self.lines.iter().find(|line| line.points.last().map(|(_, id)| *id) == self.head) else {
            return false;
        };
        let count = line.points.last().map(|(count, _)| *count);
        let has_equal_messages = line.points.iter().any(|(of, id)| *id == end && Some(*of) == count);
        let is_of_session = self.session.branches.iter().any(|branch| {
            let of = self.session.main[..branch.after].iter().chain(&branch.messages).map(|message| &message.message);
            line.shared(of) == line.messages.len()
        });
        !has_equal_messages && is_of_session
    }

    /// Returns the place from which a line goes on after a checkpoint.
    fn start(&mut self, id: CheckpointId) -> Result<LineStart, ImportError> {
        self.flush()?;
        let snapshot = self.thread.at(id)?;
        let mut position = 0;
        snapshot.visit_items(MESSAGES, ItemRange::Tail(1), |row| {
            position = row.position + 1;
            Ok(())
        })?;
        let version = channel_version(&snapshot, MESSAGES)?;
        Ok(LineStart { id, step: snapshot.step(), version, position })
    }

    /// Returns the timestamp of a message, else that of the session, else the present one.
    fn time(&self, message: Option<&Arc<SessionMessage>>) -> Timestamp {
        let at = message.and_then(|message| message.at).or(self.session.created_at);
        at.unwrap_or_else(|| self.store.now())
    }
}

/// Returns the last digits of an id, which are random.
fn last_digits(id: CheckpointId) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

/// Returns the version of a channel at a checkpoint, 0 if it was never written.
fn channel_version(at: &Snapshot, channel: &str) -> Result<u64, ImportError> {
    let state = at.state_record()?;
    Ok(state.channels.iter().find(|of| *of.channel == *channel).map_or(0, |of| of.version))
}

fn folded_change(end: u64, version: u64) -> Result<Change, ImportError> {
    let folded = Encoded::encode(&FoldedMessages::new(0..end, [])).map_err(StoreError::from)?;
    let channel = FoldedMessages::channel_of(MESSAGES);
    Ok(Change::new(channel, version, ChangeValue::Value(Data::New(Payload::from(folded)))))
}

fn facts_change(facts: &Value, version: u64) -> Result<Change, ImportError> {
    let encoded = Encoded::encode(facts).map_err(StoreError::from)?;
    Ok(Change::new(FACTS, version, ChangeValue::Value(Data::New(Payload::from(encoded)))))
}

/// Returns the facts of a session, as the channel holds them.
fn facts(session: &SourceSession) -> Value {
    let parent = session.parent.as_ref().map(|parent| match parent {
        ParentLink::Fork { id, messages } => json!({ "id": id, "kind": "fork", "messages": messages }),
        ParentLink::Sub { id, call } => json!({ "id": id, "kind": "sub", "call": call }),
    });
    let mut facts = json!({
        "source": session.source.name(),
        "id": session.id,
        "parent": parent,
        "title": session.title,
        "created_at": session.created_at.map(|at| at.to_string()),
    });
    if let Some(folder) = &session.folder {
        facts["folder"] = folder.as_str().into();
    }
    if let Some(usage) = &session.usage {
        facts["usage"] = Value::from(usage.clone()).to_json();
    }
    facts.into()
}

fn message_error(session: &SourceSession, error: impl std::fmt::Display) -> ImportError {
    ImportError::Message { session: session.id.clone(), reason: error.to_string() }
}

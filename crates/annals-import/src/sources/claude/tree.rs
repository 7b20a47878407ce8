//! The tree of a transcript: nodes that group the records of one message, and the lines from the roots to the leaves.
//!
//! All records of the model with one `message.id` are one node, and so are all results that answer the calls of such a
//! node. Without that grouping, parallel calls look like forks.

use std::collections::HashMap;
use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::Value as Json;

use super::records::{LOOSE, is_of_model_or_user, of_model, of_user};
use crate::arena::{self, DraftArena};
use crate::chain::{ChainNode, RecordChain};
use crate::draft::{DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::model::{ParentLink, SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::sources::SourceKind;

/// The facts of a node.
#[derive(Default)]
struct RecordFacts {
    is_sidechain: bool,
    /// The uuid of the first record.
    uuid: String,
    /// The session that the first record belongs to or was copied from.
    session: Option<String>,
    earliest: Option<Timestamp>,
}

/// The records of a transcript.
pub(super) struct RecordTree {
    stem: String,
    /// The nodes; the drafts of results of tools go before others.
    chain: RecordChain<RecordFacts>,
    arena: DraftArena,
    /// The node of the model's message, by its id.
    by_message: HashMap<String, usize>,
    /// The node that called a tool, by the id of the call.
    by_call: HashMap<String, usize>,
    /// The results of a node that called.
    results: HashMap<usize, usize>,
    /// The nodes with records of the model or the user, in the order of the file: the last is the newest.
    newest: Vec<usize>,
    helpers: Vec<(String, String)>,
    /// The node of the newest record of the session and of each helper within it.
    newest_of: HashMap<(bool, String), usize>,
    folder: Option<String>,
    custom_title: Option<String>,
    ai_title: Option<String>,
    summaries: Vec<(String, String)>,
}

impl RecordTree {
    pub(super) fn new(stem: &str) -> Self {
        Self {
            stem: stem.to_owned(),
            chain: RecordChain::default(),
            arena: DraftArena::default(),
            by_message: HashMap::new(),
            by_call: HashMap::new(),
            results: HashMap::new(),
            newest: Vec::new(),
            helpers: Vec::new(),
            newest_of: HashMap::new(),
            folder: None,
            custom_title: None,
            ai_title: None,
            summaries: Vec::new(),
        }
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.newest.is_empty()
    }

    /// Returns the helpers that records name, each with the tool call that started it.
    pub(super) fn calls_of_helpers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.helpers.iter().map(|(helper, call)| (helper.as_str(), call.as_str()))
    }

    /// Adds a record. Returns its kind if it was not understood.
    pub(super) fn add(
        &mut self,
        number: u64,
        record: &Json,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<Option<String>, ImportError> {
        let kind = json::text(record, "type");
        match kind {
            "summary" => self
                .summaries
                .push((json::text(record, "leafUuid").to_owned(), json::text(record, "summary").to_owned())),
            "ai-title" => self.ai_title = json::maybe_text(record, "aiTitle").or(self.ai_title.take()),
            "custom-title" => self.custom_title = json::maybe_text(record, "customTitle").or(self.custom_title.take()),
            "progress" if record["data"]["type"] == "agent_progress" => {
                let (helper, call) = (json::text(&record["data"], "agentId"), json::text(record, "parentToolUseID"));
                if !helper.is_empty() && !call.is_empty() {
                    self.helpers.push((helper.to_owned(), call.to_owned()));
                }
            }
            _ => {}
        }
        let is_message = is_of_model_or_user(record) && record["message"].is_object();
        let uuid = json::maybe_text(record, "uuid");
        let is_link = uuid.is_some() || is_message;
        let uuid = uuid.unwrap_or_else(|| format!("{}:{number}", self.stem));
        // A record that was written twice counts once.
        if is_link && !self.chain.by_id.contains_key(&uuid) {
            self.folder = self.folder.take().or_else(|| json::folder(&record["cwd"]));
            let node = match kind {
                "assistant" if is_message => {
                    let node = self.add_of_model(number, record, &uuid);
                    self.arena.drafts[self.chain.nodes[node].drafts[0]].report_lost(out, place)?;
                    node
                }
                "user" if is_message => {
                    let mut drafts = of_user(record, &uuid);
                    drafts.iter_mut().try_for_each(|draft| draft.report_lost(out, place))?;
                    self.add_of_user(number, record, &uuid, drafts)
                }
                _ => self.node(number, record, &uuid),
            };
            self.newest_of.insert(helper_of(record), node);
            if is_message {
                let earliest = &mut self.chain.nodes[node].facts.earliest;
                *earliest = [*earliest, json::time(&record["timestamp"])].into_iter().flatten().min();
                self.newest.push(node);
            }
            self.chain.by_id.insert(uuid, node);
        }
        let is_known = is_message || LOOSE.contains(&kind);
        Ok((!is_known).then(|| if kind.is_empty() { "record".to_owned() } else { kind.to_owned() }))
    }

    fn node(&mut self, number: u64, record: &Json, uuid: &str) -> usize {
        let parent = json::maybe_text(record, "parentUuid").or_else(|| json::maybe_text(record, "logicalParentUuid"));
        let from = json::maybe_text(&record["forkedFrom"], "sessionId");
        let facts = RecordFacts {
            is_sidechain: record["isSidechain"] == true,
            uuid: uuid.to_owned(),
            session: from.or_else(|| json::maybe_text(record, "sessionId")),
            earliest: None,
        };
        let before = self.newest_of.get(&helper_of(record)).copied();
        self.chain.nodes.push(ChainNode::new(number, parent, before, facts));
        self.chain.nodes.len() - 1
    }

    fn add_of_model(&mut self, number: u64, record: &Json, uuid: &str) -> usize {
        let id = json::maybe_text(&record["message"], "id");
        let node = match id.as_ref().and_then(|id| self.by_message.get(id)) {
            Some(node) => *node,
            None => {
                let node = self.node(number, record, uuid);
                let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
                draft.id = Some(id.clone().unwrap_or_else(|| uuid.to_owned()));
                draft.at = json::time(&record["timestamp"]);
                let draft = self.arena.add(draft);
                self.chain.nodes[node].drafts.push(draft);
                node
            }
        };
        if let Some(id) = id {
            self.by_message.insert(id, node);
        }
        let draft = &mut self.arena.drafts[self.chain.nodes[node].drafts[0]];
        of_model(draft, record);
        let calls = draft.calls.iter().filter_map(|call| call.id.clone());
        let calls: Vec<String> = calls.chain(draft.invalid.iter().filter_map(|call| call.id.clone())).collect();
        for call in calls {
            self.by_call.entry(call).or_insert(node);
        }
        node
    }

    fn add_of_user(&mut self, number: u64, record: &Json, uuid: &str, drafts: Vec<MessageDraft>) -> usize {
        let answered = drafts.iter().filter(|draft| draft.kind == DraftKind::Tool).map(|draft| draft.answers.clone());
        let answered: Vec<String> = answered.collect();
        if let (Some(helper), Some(call)) = (json::maybe_text(&record["toolUseResult"], "agentId"), answered.first()) {
            self.helpers.push((helper, call.clone()));
        }
        let caller = answered.iter().find_map(|call| self.by_call.get(call).copied());
        let node = match caller.and_then(|caller| self.results.get(&caller)) {
            Some(node) => *node,
            None => {
                let node = self.node(number, record, uuid);
                if let Some(caller) = caller {
                    self.chain.nodes[node].caller = Some(caller);
                    self.results.insert(caller, node);
                }
                node
            }
        };
        for draft in drafts {
            let is_result = draft.kind == DraftKind::Tool;
            let number = self.arena.add(draft);
            let of_node = &mut self.chain.nodes[node].drafts;
            let results = of_node.iter().take_while(|of| self.arena.drafts[**of].kind == DraftKind::Tool).count();
            let at = if is_result { results } else { of_node.len() };
            of_node.insert(at, number);
        }
        node
    }

    /// Joins the nodes whose parents are in no record, and reports them.
    pub(super) fn join(&mut self, out: &mut ReadOutput<'_>, file: &str) -> Result<(), ImportError> {
        self.chain.join(&mut self.arena, out, file)
    }

    /// Returns the session of the transcript, and those of the helpers within it.
    pub(super) fn into_sessions(
        mut self,
        id: String,
        parent: Option<ParentLink>,
        description: Option<String>,
        is_helper: bool,
    ) -> Vec<SourceSession> {
        let roots = self.chain.roots();
        // The tree that each node belongs to: none of the session, else the root of a helper.
        let of_helper =
            |node: usize| Some(roots[node]).filter(|root| !is_helper && self.chain.nodes[*root].facts.is_sidechain);
        let mut groups: Vec<(Option<usize>, Vec<usize>)> = vec![(None, Vec::new())];
        for node in &self.newest {
            let key = of_helper(*node);
            match groups.iter_mut().find(|(of, _)| *of == key) {
                Some((_, nodes)) => nodes.push(*node),
                None => groups.push((key, vec![*node])),
            }
        }
        let title = self.title().or(description);
        let drafts = std::mem::take(&mut self.arena);
        let messages = drafts.into_messages();
        let mut sessions = Vec::new();
        for (root, nodes) in groups {
            if nodes.is_empty() {
                continue;
            }
            let (id, parent, title) = match root {
                None => (id.clone(), parent.clone(), title.clone()),
                Some(root) => {
                    let parent = ParentLink::Sub { id: id.clone(), call: None };
                    (self.chain.nodes[root].facts.uuid.clone(), Some(parent), None)
                }
            };
            sessions.push(self.session(id, parent, title, &nodes, &messages));
        }
        sessions
    }

    fn title(&mut self) -> Option<String> {
        let of_this_file = |(leaf, _): &&(String, String)| self.chain.by_id.contains_key(leaf);
        let summary = self.summaries.iter().rev().find(of_this_file).map(|(_, summary)| summary.clone());
        let title = self.custom_title.take().or(self.ai_title.take()).or(summary);
        title.filter(|title| !title.is_empty())
    }

    /// Returns the session of the lines that end in `nodes`, whose last is the newest.
    fn session(
        &self,
        id: String,
        parent: Option<ParentLink>,
        title: Option<String>,
        nodes: &[usize],
        messages: &[Arc<SessionMessage>],
    ) -> SourceSession {
        let newest = nodes.last().copied().unwrap_or_default();
        let main_nodes = self.chain.line(newest);
        let main = self.chain.pick(messages, &main_nodes);
        let leaves = self.chain.leaves(nodes, newest);
        let left = leaves.iter().map(|leaf| self.chain.pick(messages, &self.chain.line(*leaf))).collect();
        let parent = parent.map(|parent| match parent {
            ParentLink::Fork { id, .. } => {
                let is_shared = |node: &&usize| {
                    let of = &self.chain.nodes[**node];
                    of.drafts.is_empty() || of.facts.session.as_deref() == Some(&id)
                };
                let shared = main_nodes.iter().take_while(is_shared);
                let messages = shared.map(|node| self.chain.nodes[*node].drafts.len()).sum();
                ParentLink::Fork { id, messages }
            }
            sub => sub,
        });
        SourceSession {
            parent,
            title,
            created_at: nodes.iter().filter_map(|node| self.chain.nodes[*node].facts.earliest).min(),
            folder: self.folder.clone(),
            branches: arena::branches(&main, left),
            ..SourceSession::new(SourceKind::ClaudeCode, id, main)
        }
    }
}

/// Returns what tells the records of a session and of each helper within it apart.
fn helper_of(record: &Json) -> (bool, String) {
    (record["isSidechain"] == true, json::text(record, "agentId").to_owned())
}

//! The tree of a transcript: nodes that group the records of one message, and the lines from the roots to the leaves.
//!
//! All records of the model with one `message.id` are one node, and so are all results that answer the calls of such a
//! node. Without that grouping, parallel calls look like forks. Invariant: walking up ends, also in a damaged file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::Value as Json;

use super::records::{LOOSE, is_of_model_or_user, of_model, of_user};
use crate::arena::{self, DraftArena};
use crate::draft::{DraftKind, MessageDraft};
use crate::json;
use crate::model::{ParentLink, SessionMessage, SourceKind, SourceSession};

/// A node of the tree.
#[derive(Default)]
struct RecordNode {
    /// The record that the first record hangs on.
    parent_record: Option<String>,
    /// The node that called, of results.
    caller: Option<usize>,
    /// The messages; results of tools go before others.
    drafts: Vec<usize>,
    /// True if a record is of the model or of the user.
    has_messages: bool,
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
    nodes: Vec<RecordNode>,
    arena: DraftArena,
    /// The node of each record.
    by_uuid: HashMap<String, usize>,
    /// The node of the model's message, by its id.
    by_message: HashMap<String, usize>,
    /// The node that called a tool, by the id of the call.
    by_call: HashMap<String, usize>,
    /// The results of a node that called.
    results: HashMap<usize, usize>,
    /// The nodes with records of the model or the user, in the order of the file: the last is the newest.
    newest: Vec<usize>,
    helpers: Vec<(String, String)>,
    custom_title: Option<String>,
    ai_title: Option<String>,
    summaries: Vec<(String, String)>,
}

impl RecordTree {
    pub(super) fn new(stem: &str) -> Self {
        Self {
            stem: stem.to_owned(),
            nodes: Vec::new(),
            arena: DraftArena::default(),
            by_uuid: HashMap::new(),
            by_message: HashMap::new(),
            by_call: HashMap::new(),
            results: HashMap::new(),
            newest: Vec::new(),
            helpers: Vec::new(),
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
    pub(super) fn add(&mut self, number: u64, record: &Json) -> Option<String> {
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
        if is_link && !self.by_uuid.contains_key(&uuid) {
            let node = match kind {
                "assistant" if is_message => self.add_of_model(record, &uuid),
                "user" if is_message => self.add_of_user(record, &uuid),
                _ => self.node(record, &uuid),
            };
            if is_message {
                self.nodes[node].has_messages = true;
                let at = json::time(&record["timestamp"]);
                self.nodes[node].earliest = [self.nodes[node].earliest, at].into_iter().flatten().min();
                self.newest.push(node);
            }
            self.by_uuid.insert(uuid, node);
        }
        let is_known = is_message || LOOSE.contains(&kind);
        (!is_known).then(|| if kind.is_empty() { "record".to_owned() } else { kind.to_owned() })
    }

    fn node(&mut self, record: &Json, uuid: &str) -> usize {
        let parent = json::maybe_text(record, "parentUuid").or_else(|| json::maybe_text(record, "logicalParentUuid"));
        let from = json::maybe_text(&record["forkedFrom"], "sessionId");
        self.nodes.push(RecordNode {
            parent_record: parent,
            is_sidechain: record["isSidechain"] == true,
            uuid: uuid.to_owned(),
            session: from.or_else(|| json::maybe_text(record, "sessionId")),
            ..RecordNode::default()
        });
        self.nodes.len() - 1
    }

    fn add_of_model(&mut self, record: &Json, uuid: &str) -> usize {
        let id = json::maybe_text(&record["message"], "id");
        let node = match id.as_ref().and_then(|id| self.by_message.get(id)) {
            Some(node) => *node,
            None => {
                let node = self.node(record, uuid);
                let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
                draft.id = Some(id.clone().unwrap_or_else(|| uuid.to_owned()));
                draft.at = json::time(&record["timestamp"]);
                let draft = self.arena.add(draft);
                self.nodes[node].drafts.push(draft);
                node
            }
        };
        if let Some(id) = id {
            self.by_message.insert(id, node);
        }
        let draft = &mut self.arena.drafts[self.nodes[node].drafts[0]];
        of_model(draft, record);
        let calls = draft.calls.iter().filter_map(|call| call.id.clone());
        let calls: Vec<String> = calls.chain(draft.invalid.iter().filter_map(|call| call.id.clone())).collect();
        for call in calls {
            self.by_call.entry(call).or_insert(node);
        }
        node
    }

    fn add_of_user(&mut self, record: &Json, uuid: &str) -> usize {
        let drafts = of_user(record, uuid);
        let answered = drafts.iter().filter(|draft| draft.kind == DraftKind::Tool).map(|draft| draft.answers.clone());
        let answered: Vec<String> = answered.collect();
        if let (Some(helper), Some(call)) = (json::maybe_text(&record["toolUseResult"], "agentId"), answered.first()) {
            self.helpers.push((helper, call.clone()));
        }
        let caller = answered.iter().find_map(|call| self.by_call.get(call).copied());
        debug_assert!(!drafts.is_empty(), "a record of the user makes a message");
        let node = match caller.and_then(|caller| self.results.get(&caller)) {
            Some(node) => *node,
            None => {
                let node = self.node(record, uuid);
                if let Some(caller) = caller {
                    self.nodes[node].caller = Some(caller);
                    self.results.insert(caller, node);
                }
                node
            }
        };
        for draft in drafts {
            let is_result = draft.kind == DraftKind::Tool;
            let number = self.arena.add(draft);
            let of_node = &mut self.nodes[node].drafts;
            let results = of_node.iter().take_while(|of| self.arena.drafts[**of].kind == DraftKind::Tool).count();
            let at = if is_result { results } else { of_node.len() };
            of_node.insert(at, number);
        }
        node
    }

    fn parent(&self, node: usize) -> Option<usize> {
        let of = &self.nodes[node];
        of.caller.or_else(|| self.by_uuid.get(of.parent_record.as_ref()?).copied()).filter(|parent| *parent != node)
    }

    /// Returns the nodes from the root to a node.
    fn line(&self, node: usize) -> Vec<usize> {
        let (mut line, mut seen) = (Vec::new(), HashSet::new());
        let mut next = Some(node);
        while let Some(above) = next.filter(|above| seen.insert(*above)) {
            line.push(above);
            next = self.parent(above);
        }
        line.reverse();
        debug_assert_eq!(line.last(), Some(&node), "a line ends in its node");
        line
    }

    /// Returns the root of each node.
    fn roots(&self) -> Vec<usize> {
        let mut roots: Vec<Option<usize>> = vec![None; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let (mut path, mut seen) = (Vec::new(), HashSet::new());
            let mut at = start;
            let root = loop {
                if let Some(root) = roots[at] {
                    break root;
                }
                seen.insert(at);
                path.push(at);
                match self.parent(at).filter(|parent| !seen.contains(parent)) {
                    Some(parent) => at = parent,
                    None => break at,
                }
            };
            path.into_iter().for_each(|node| roots[node] = Some(root));
        }
        roots.into_iter().enumerate().map(|(node, root)| root.unwrap_or(node)).collect()
    }

    /// Returns the session of the transcript, and those of the helpers within it.
    pub(super) fn into_sessions(
        mut self,
        id: String,
        parent: Option<ParentLink>,
        is_helper: bool,
    ) -> Vec<SourceSession> {
        let roots = self.roots();
        // The tree that each node belongs to: none of the session, else the root of a helper.
        let of_helper = |node: usize| Some(roots[node]).filter(|root| !is_helper && self.nodes[*root].is_sidechain);
        let mut groups: Vec<(Option<usize>, Vec<usize>)> = vec![(None, Vec::new())];
        for node in &self.newest {
            let key = of_helper(*node);
            match groups.iter_mut().find(|(of, _)| *of == key) {
                Some((_, nodes)) => nodes.push(*node),
                None => groups.push((key, vec![*node])),
            }
        }
        let title = self.title();
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
                    (self.nodes[root].uuid.clone(), Some(parent), None)
                }
            };
            sessions.push(self.session(id, parent, title, &nodes, &messages));
        }
        sessions
    }

    fn title(&mut self) -> Option<String> {
        let of_this_file = |(leaf, _): &&(String, String)| self.by_uuid.contains_key(leaf);
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
        let mut has_below = HashSet::new();
        for node in nodes {
            let mut next = self.parent(*node);
            // A node that is known to have messages below it has ancestors that are known as well.
            while let Some(above) = next.filter(|above| has_below.insert(*above)) {
                next = self.parent(above);
            }
        }
        let newest = nodes.last().copied().unwrap_or_default();
        let main_nodes = self.line(newest);
        let pick = |line: &[usize]| -> Vec<Arc<SessionMessage>> {
            let drafts = line.iter().flat_map(|node| &self.nodes[*node].drafts);
            drafts.map(|draft| Arc::clone(&messages[*draft])).collect()
        };
        let mut seen = HashSet::from([newest]);
        let leaves = nodes.iter().filter(|node| !has_below.contains(*node) && seen.insert(**node));
        let left: Vec<_> = leaves.map(|leaf| pick(&self.line(*leaf))).collect();
        let main = pick(&main_nodes);
        let parent = parent.map(|parent| match parent {
            ParentLink::Fork { id, .. } => {
                let is_shared = |node: &&usize| {
                    let of = &self.nodes[**node];
                    of.drafts.is_empty() || of.session.as_deref() == Some(&id)
                };
                let shared = main_nodes.iter().take_while(is_shared);
                let messages = shared.map(|node| self.nodes[*node].drafts.len()).sum();
                ParentLink::Fork { id, messages }
            }
            sub => sub,
        });
        SourceSession {
            earlier_ids: Vec::new(),
            source: SourceKind::ClaudeCode,
            id,
            parent,
            title,
            created_at: nodes.iter().filter_map(|node| self.nodes[*node].earliest).min(),
            usage: None,
            branches: arena::branches(&main, left),
            main,
        }
    }
}

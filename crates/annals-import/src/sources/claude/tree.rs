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
use crate::error::ImportError;
use crate::json;
use crate::model::{ParentLink, SessionMessage, SourceKind, SourceSession};
use crate::output::ReadOutput;

/// A node of the tree.
#[derive(Default)]
struct RecordNode {
    /// The line of the first record.
    number: u64,
    /// The record that the first record hangs on.
    parent_record: Option<String>,
    /// The node of the record of the same helper before the first record.
    before: Option<usize>,
    /// The node that replaces a parent which is in no record.
    joined: Option<usize>,
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
            nodes: Vec::new(),
            arena: DraftArena::default(),
            by_uuid: HashMap::new(),
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
        if is_link && !self.by_uuid.contains_key(&uuid) {
            self.folder = self.folder.take().or_else(|| json::folder(&record["cwd"]));
            let node = match kind {
                "assistant" if is_message => {
                    let node = self.add_of_model(number, record, &uuid);
                    self.arena.drafts[self.nodes[node].drafts[0]].report_lost(out, place)?;
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
                self.nodes[node].has_messages = true;
                let at = json::time(&record["timestamp"]);
                self.nodes[node].earliest = [self.nodes[node].earliest, at].into_iter().flatten().min();
                self.newest.push(node);
            }
            self.by_uuid.insert(uuid, node);
        }
        let is_known = is_message || LOOSE.contains(&kind);
        Ok((!is_known).then(|| if kind.is_empty() { "record".to_owned() } else { kind.to_owned() }))
    }

    fn node(&mut self, number: u64, record: &Json, uuid: &str) -> usize {
        let parent = json::maybe_text(record, "parentUuid").or_else(|| json::maybe_text(record, "logicalParentUuid"));
        let from = json::maybe_text(&record["forkedFrom"], "sessionId");
        self.nodes.push(RecordNode {
            number,
            parent_record: parent,
            before: self.newest_of.get(&helper_of(record)).copied(),
            is_sidechain: record["isSidechain"] == true,
            uuid: uuid.to_owned(),
            session: from.or_else(|| json::maybe_text(record, "sessionId")),
            ..RecordNode::default()
        });
        self.nodes.len() - 1
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
        let recorded = || self.by_uuid.get(of.parent_record.as_ref()?).copied();
        of.caller.or_else(recorded).or(of.joined).filter(|parent| *parent != node)
    }

    /// Joins each node whose parent is in no record to the record before it, and marks the first message at or below
    /// it. Returns the lines of these nodes, each with the parent that it names. A node with no record before it is a
    /// root.
    pub(super) fn join(&mut self) -> Vec<(u64, String)> {
        let mut roots = self.roots();
        let mut joined = Vec::new();
        for node in 0..self.nodes.len() {
            let of = &self.nodes[node];
            let Some(named) = of.parent_record.as_ref().filter(|named| !self.by_uuid.contains_key(*named)) else {
                continue;
            };
            let Some(before) = of.before.filter(|_| of.caller.is_none()) else { continue };
            // A node does not join a record below it, which would cut both off.
            if root_of(&mut roots, before) != node {
                joined.push((node, before, (of.number, named.clone())));
                roots[node] = before;
            }
        }
        joined.iter().for_each(|(node, before, _)| self.nodes[*node].joined = Some(*before));
        let firsts = self.first_messages();
        for (node, ..) in &joined {
            if let Some(first) = firsts[*node].and_then(|first| self.nodes[first].drafts.first()) {
                self.arena.drafts[*first].is_joined = true;
            }
        }
        joined.into_iter().map(|(.., reported)| reported).collect()
    }

    /// Returns for each node the first node with a message at or below it, with no message between the two.
    fn first_messages(&self) -> Vec<Option<usize>> {
        let parents: Vec<Option<usize>> = (0..self.nodes.len()).map(|node| self.parent(node)).collect();
        let mut children = vec![0_usize; self.nodes.len()];
        parents.iter().flatten().for_each(|parent| children[*parent] += 1);
        let of_node = |node: usize| Some(node).filter(|node| !self.nodes[*node].drafts.is_empty());
        let mut firsts: Vec<Option<usize>> = (0..self.nodes.len()).map(of_node).collect();
        // From the leaves up, each node after those below it.
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|node| children[*node] == 0).collect();
        while let Some(node) = ready.pop() {
            let Some(parent) = parents[node] else { continue };
            if self.nodes[parent].drafts.is_empty() {
                firsts[parent] = [firsts[parent], firsts[node]].into_iter().flatten().min();
            }
            children[parent] -= 1;
            if children[parent] == 0 {
                ready.push(parent);
            }
        }
        firsts
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
        description: Option<String>,
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
            parent,
            title,
            created_at: nodes.iter().filter_map(|node| self.nodes[*node].earliest).min(),
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

/// Returns the root above a node, where roots were joined to other nodes, and shortens the way to it.
fn root_of(roots: &mut [usize], node: usize) -> usize {
    let mut root = node;
    while roots[root] != root {
        root = roots[root];
    }
    let mut at = node;
    while roots[at] != root {
        at = std::mem::replace(&mut roots[at], root);
    }
    root
}

//! Conversations of ChatGPT's export: trees of nodes.
//!
//! Invariant: walking up ends, also in a damaged file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json, json};

use super::kind_of_role;
use crate::arena::{self, DraftArena, pick};
use crate::draft::{DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::model::{SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::sources::SourceKind;

/// Reads a conversation.
pub(crate) fn conversation(id: String, of: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
    let Some(mapping) = of["mapping"].as_object() else {
        return out.unknown("record", place, of.to_string());
    };
    let mut tree = NodeTree { mapping, arena: DraftArena::default(), drafts: HashMap::new() };
    let parents: HashSet<&str> = mapping.values().filter_map(|node| node["parent"].as_str()).collect();
    let leaves: Vec<&str> = mapping.keys().map(String::as_str).filter(|id| !parents.contains(id)).collect();
    let current = of["current_node"].as_str().filter(|id| mapping.contains_key(*id));
    let created = |id: &&&str| mapping[**id]["message"]["create_time"].as_f64().unwrap_or(f64::MIN);
    let latest = || leaves.iter().max_by(|a, b| created(a).total_cmp(&created(b))).copied();
    let main = match current.or_else(latest) {
        Some(end) => tree.line(end, out, place)?,
        None => Vec::new(),
    };
    let mut left = Vec::new();
    for leaf in leaves.iter().filter(|leaf| Some(**leaf) != current) {
        left.push(tree.line(leaf, out, place)?);
    }
    let messages = tree.arena.into_messages();
    let main: Vec<Arc<SessionMessage>> = pick(&messages, &main);
    let left = left.iter().map(|line| pick(&messages, line)).collect();
    out.session(SourceSession {
        title: json::maybe_text(of, "title"),
        created_at: json::seconds(&of["create_time"]),
        branches: arena::branches(&main, left),
        ..SourceSession::new(SourceKind::Chat, id, main)
    })
}

struct NodeTree<'a> {
    mapping: &'a JsonMap<String, Json>,
    arena: DraftArena,
    /// The message of each node that was read, if it has one.
    drafts: HashMap<&'a str, Option<usize>>,
}

impl<'a> NodeTree<'a> {
    /// Returns the messages from the root to a node.
    fn line(&mut self, end: &'a str, out: &mut ReadOutput<'_>, place: &str) -> Result<Vec<usize>, ImportError> {
        let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
        let mut next = self.mapping.get_key_value(end);
        while let Some((id, node)) = next.filter(|(id, _)| seen.insert(id.as_str())) {
            nodes.push((id.as_str(), node));
            next = node["parent"].as_str().and_then(|parent| self.mapping.get_key_value(parent));
        }
        let mut line = Vec::new();
        // The thoughts before the next message of the model.
        let mut thoughts = String::new();
        for (id, node) in nodes.into_iter().rev() {
            let message = &node["message"];
            let content = &message["content"];
            if content["content_type"] == "thoughts" {
                let of = json::items(&content["thoughts"]).iter().map(|thought| json::text(thought, "content"));
                thoughts.extend(of);
            }
            let draft = match self.drafts.get(id) {
                Some(draft) => *draft,
                None => {
                    let place = format!("{place}/{id}");
                    let read = read_node(id, node, &thoughts, out, &place)?;
                    let draft = read.map(|draft| self.arena.add(draft));
                    self.drafts.insert(id, draft);
                    draft
                }
            };
            if let Some(draft) = draft {
                if self.arena.drafts[draft].kind == DraftKind::Ai {
                    thoughts.clear();
                }
                line.push(draft);
            }
        }
        Ok(line)
    }
}

/// Returns the message of a node.
fn read_node(
    id: &str,
    node: &Json,
    thoughts: &str,
    out: &mut ReadOutput<'_>,
    place: &str,
) -> Result<Option<MessageDraft>, ImportError> {
    let (message, content) = (&node["message"], &node["message"]["content"]);
    let is_hidden = message["metadata"]["is_visually_hidden_from_conversation"] == true;
    let content_type = json::text(content, "content_type");
    let is_quiet =
        matches!(content_type, "thoughts" | "reasoning_recap" | "user_editable_context" | "model_editable_context");
    if !message.is_object() || is_hidden || is_quiet {
        return Ok(None);
    }
    let role = json::text(&message["author"], "role");
    let Some(kind) = kind_of_role(role) else {
        out.unknown(format!("role/{role}"), place, message.to_string())?;
        return Ok(None);
    };
    let mut draft = MessageDraft::new(kind, id.to_owned());
    draft.id = json::maybe_text(message, "id").or_else(|| Some(id.to_owned()));
    draft.at = json::seconds(&message["create_time"]);
    if kind == DraftKind::Ai {
        draft.model = json::maybe_text(&message["metadata"], "model_slug");
        draft.reasoning(thoughts);
    }
    if kind == DraftKind::Tool {
        json::text(node, "parent").clone_into(&mut draft.answers);
    }
    let recipient = json::text(message, "recipient");
    if kind == DraftKind::Ai && !matches!(recipient, "" | "all") {
        let mut text = MessageDraft::new(kind, String::new());
        fill(&mut text, content_type, content);
        text.report_lost(out, place)?;
        let text: String = text.blocks.iter().map(|block| json::text(block, "text")).collect();
        let call = draft.id.clone().unwrap_or_default();
        draft.call(&call, recipient, &json!({ "input": text }));
        return Ok(Some(draft));
    }
    if !fill(&mut draft, content_type, content) {
        out.unknown(format!("content/{content_type}"), place, message.to_string())?;
    }
    draft.report_lost(out, place)?;
    Ok(Some(draft))
}

/// Adds content to a message. Returns false if its type is not known.
fn fill(draft: &mut MessageDraft, content_type: &str, content: &Json) -> bool {
    match content_type {
        "text" | "multimodal_text" => {
            if content.get("parts").is_none() {
                draft.lose(content_type, content);
            }
            for part in json::items(&content["parts"]) {
                match (part, json::text(part, "content_type")) {
                    (Json::String(text), _) => draft.text(text),
                    (part, "image_asset_pointer") => draft.image(json::text(part, "asset_pointer")),
                    (Json::Null, _) => {}
                    (part, _) => draft.opaque(part),
                }
            }
        }
        "code" | "execution_output" if content.get("text").is_none() => draft.lose(content_type, content),
        "code" | "execution_output" => draft.text(json::text(content, "text")),
        _ => return false,
    }
    true
}

//! Values as HTML: a tree with types and sizes, and texts of which a part is shown.

use annals::base::Value;
use annals_runs::ThreadStatus;
use annals_view::words::{self, brief, shortened, size};

use crate::address::encode;
use crate::html::Html;
use crate::limits::{LINE_CHARS_MAX, STATUS_CHARS_MAX, TEXT_CHARS_MAX, TREE_NODES_MAX};

/// Nesting of a tree that is shown; deeper values are a link.
const DEPTH: usize = 12;

/// A tree of a value, as far as it fits.
pub(crate) struct ValueTree<'a> {
    /// The address of the value, for links to its parts; `None` of metadata, whose parts have no address.
    base: Option<&'a str>,
    left: usize,
}

impl<'a> ValueTree<'a> {
    /// Adds the tree of a value.
    pub(crate) fn add_to(html: &mut Html, value: &Value, base: &'a str) {
        Self::add(html, value, Some(base));
    }

    /// Adds the tree of a value that has no address.
    pub(crate) fn add_without_links(html: &mut Html, value: &Value) {
        Self::add(html, value, None);
    }

    fn add(html: &mut Html, value: &Value, base: Option<&'a str>) {
        let mut tree = Self { base, left: TREE_NODES_MAX };
        match value {
            Value::List(_) | Value::Map(_) => tree.members(html, value, "", 0),
            value => {
                html.open("div", &[("class", "tree")]);
                tree.leaf(html, value, "");
                html.close("div");
            }
        }
    }

    /// Adds a value without members: a short text in quotes, a longer one below its name.
    fn leaf(&self, html: &mut Html, value: &Value, path: &str) {
        match (value, self.base) {
            (Value::Str(content), _) if is_short(content) => {
                html.element("i", &[("dir", "auto")], &format!("\"{content}\""));
            }
            (Value::Str(content), Some(base)) => text(html, content, &format!("{base}{path}")),
            (Value::Str(content), None) => {
                html.element("pre", &[("dir", "auto"), ("class", "text")], &shortened(content, TEXT_CHARS_MAX));
            }
            (value, _) => {
                html.element("i", &[("dir", "auto")], &brief(value));
            }
        }
    }

    /// Adds a text with a link to a path, if the value has an address.
    fn link(&self, html: &mut Html, path: &str, text: &str) {
        match self.base {
            Some(base) => {
                html.element("a", &[("href", &format!("{base}{path}")), ("dir", "auto")], text);
            }
            None => _ = html.element("b", &[("dir", "auto")], text),
        }
    }

    fn members(&mut self, html: &mut Html, value: &Value, path: &str, depth: usize) {
        let members: Vec<(String, &Value)> = match value {
            Value::List(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
            Value::Map(map) => map.iter().map(|(name, item)| (name.clone(), item)).collect(),
            _ => Vec::new(),
        };
        let len = members.len();
        html.open("ul", &[("class", "tree")]);
        for (shown, (name, item)) in members.into_iter().enumerate() {
            let path = format!("{path}/{}", encode(&name));
            if self.left == 0 {
                html.within("li", &[], |html| self.link(html, &path, &format!("{} more", len - shown)));
                break;
            }
            self.left -= 1;
            html.open("li", &[]);
            match item {
                Value::List(_) | Value::Map(_) if depth < DEPTH => {
                    html.open("details", &[("open", "")]).open("summary", &[]);
                    self.link(html, &path, &shortened(&name, 80));
                    html.literal(" ").classed("span", "dim", &kind(item)).close("summary");
                    self.members(html, item, &path, depth + 1);
                    html.close("details");
                }
                Value::List(_) | Value::Map(_) => {
                    self.link(html, &path, &shortened(&name, 80));
                    html.literal(" ").classed("span", "dim", &kind(item));
                }
                item => {
                    self.link(html, &path, &shortened(&name, 80));
                    html.literal(" ");
                    self.leaf(html, item, &path);
                }
            }
            html.close("li");
        }
        html.close("ul");
    }
}

/// Returns whether a text stands beside its name.
fn is_short(text: &str) -> bool {
    text.chars().nth(LINE_CHARS_MAX).is_none() && !text.contains('\n')
}

/// Adds a text, of which the rest is a link away.
pub(crate) fn text(html: &mut Html, text: &str, address: &str) {
    let shown = text.char_indices().nth(TEXT_CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
    html.element("pre", &[("dir", "auto"), ("class", "text")], shown);
    if shown.len() < text.len() {
        html.within("p", &[("class", "dim")], |html| {
            html.text(&format!("the first {} of {} · ", size(shown.len() as u64), size(text.len() as u64)));
            html.link(&format!("{address}?raw=1"), "all of it");
        });
    }
}

/// Returns the text of an interrupt, shortened.
pub(crate) fn interrupt(value: &Value) -> String {
    shortened(&words::interrupt(value), STATUS_CHARS_MAX)
}

/// Returns a status with its cause, shortened.
pub(crate) fn status_text(status: &ThreadStatus, next: &str) -> String {
    shortened(&words::status_text(status, next), STATUS_CHARS_MAX)
}

/// Returns the type of a value with its size.
pub(crate) fn kind(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("text, {}", size(text.len() as u64)),
        Value::Bytes(bytes) => format!("bytes, {}", size(bytes.len() as u64)),
        Value::List(items) => format!("list of {}", items.len()),
        Value::Map(map) => format!("map of {}", map.len()),
        value => value.kind().to_owned(),
    }
}

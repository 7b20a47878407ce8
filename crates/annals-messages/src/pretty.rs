//! Messages as text for people: `pretty_repr` of LangChain.
//!
//! *Absent:* printing.

use std::fmt::Write;

use super::text::{py_repr, py_str, py_title};
use super::{Content, Message, Role};
use annals_base::Value;

/// How wide a title line is, in characters.
const WIDTH: usize = 80;

/// Returns a title between two runs of `=`, 80 characters wide unless the title is longer; `bold` wraps it in the codes
/// with which a terminal shows bold text.
///
/// # Example
/// ```
/// let line = annals_messages::title_repr("Human Message", false);
/// assert_eq!(line, "================================ Human Message =================================");
/// ```
#[doc(alias = "get_msg_title_repr")]
pub fn title_repr(title: &str, bold: bool) -> String {
    let length = title.chars().count() + 2;
    let side = "=".repeat(WIDTH.saturating_sub(length) / 2);
    let odd = if length % 2 == 1 { "=" } else { "" };
    let (on, off) = if bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    format!("{side}{on} {title} {off}{side}{odd}")
}

impl Message {
    /// Returns the message as text for people: a title line, the name, the content and the tool calls. `bold` only sets
    /// the title in bold type.
    ///
    /// # Example
    /// ```
    /// use annals_messages::{Message, ToolCall};
    ///
    /// let answer = Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id("c1"));
    /// let text = answer.pretty_repr(false);
    /// assert!(text.ends_with("Tool Calls:\n  weather (c1)\n Call ID: c1\n  Args:\n    city: Bern"), "{text}");
    /// ```
    pub fn pretty_repr(&self, bold: bool) -> String {
        let mut text = title_repr(&format!("{} Message", py_title(self.kind())), bold);
        if let Some(name) = &self.name {
            text.push_str("\nName: ");
            text.push_str(name);
        }
        text.push_str("\n\n");
        match &self.content {
            Content::Text(content) => text.push_str(content),
            Content::Blocks(blocks) => text.push_str(&py_repr(&Value::List(blocks.clone()))),
        }
        let Role::Ai(ai) = &self.role else { return text };
        let mut lines = strip(&text).to_owned();
        if !ai.tool_calls.is_empty() {
            lines.push_str("\nTool Calls:");
            for call in &ai.tool_calls {
                head(&mut lines, Some(&call.name), call.id.as_deref(), None);
                for (name, value) in &call.args {
                    _ = write!(lines, "\n    {name}: {}", py_str(value));
                }
            }
        }
        if !ai.invalid_tool_calls.is_empty() {
            lines.push_str("\nInvalid Tool Calls:");
            for call in &ai.invalid_tool_calls {
                head(&mut lines, call.name.as_deref(), call.id.as_deref(), call.error.as_deref());
                if let Some(args) = &call.args {
                    _ = write!(lines, "\n    {args}");
                }
            }
        }
        strip(&lines).to_owned()
    }
}

/// Takes away what Python takes for white space.
fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f'))
}

/// Adds the lines of a tool call that stand above its arguments.
fn head(lines: &mut String, name: Option<&str>, id: Option<&str>, error: Option<&str>) {
    let (name, id) = (name.unwrap_or("None"), id.unwrap_or("None"));
    _ = write!(lines, "\n  {name} ({id})\n Call ID: {id}");
    if let Some(error) = error.filter(|error| !error.is_empty()) {
        _ = write!(lines, "\n  Error: {error}");
    }
    lines.push_str("\n  Args:");
}

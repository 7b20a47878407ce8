//! Views of a response: its text, thinking, calls and files.
//!
//! *Absent:* its cost, which needs the prices of the providers.

use super::file::Binary;
use super::history::ModelResponse;
use super::part::ResponsePart;
use super::tool::{NativeToolCallPart, NativeToolReturnPart, ToolCallPart};

impl ModelResponse {
    /// Returns the text (`text`): adjacent texts and transcripts are joined, others are a blank line apart. `None`
    /// if there is neither.
    pub fn text(&self) -> Option<String> {
        let mut texts: Vec<String> = Vec::new();
        let mut goes_on = false;
        for part in &self.parts {
            let said = match part {
                ResponsePart::Text(part) => Some(part.content.as_str()),
                ResponsePart::Speech(part) => part.transcript.as_deref().filter(|text| !text.is_empty()),
                _ => None,
            };
            match (said, texts.last_mut()) {
                (Some(text), Some(last)) if goes_on => last.push_str(text),
                (Some(text), _) => texts.push(text.to_owned()),
                (None, _) => {}
            }
            goes_on = said.is_some();
        }
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Returns the thinking, parts a blank line apart (`thinking`). `None` without thinking parts.
    pub fn thinking(&self) -> Option<String> {
        let texts: Vec<&str> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                ResponsePart::Thinking(part) => Some(part.content.as_str()),
                _ => None,
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Returns the calls of tools of the application.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCallPart> {
        self.parts.iter().filter_map(|part| match part {
            ResponsePart::ToolCall(part) => Some(part),
            _ => None,
        })
    }

    /// Returns the calls of tools of the provider, each with the last result that has its id; those without one are
    /// left out.
    pub fn native_tool_calls(&self) -> Vec<(&NativeToolCallPart, &NativeToolReturnPart)> {
        let result = |id: &str| {
            self.parts.iter().rev().find_map(|part| match part {
                ResponsePart::NativeToolReturn(result) if result.tool_call_id == id => Some(result),
                _ => None,
            })
        };
        let calls = self.parts.iter().filter_map(|part| match part {
            ResponsePart::NativeToolCall(call) => Some(call),
            _ => None,
        });
        calls.filter_map(|call| Some((call, result(&call.tool_call_id)?))).collect()
    }

    /// Returns the files that the model made.
    pub fn files(&self) -> impl Iterator<Item = &Binary> {
        self.parts.iter().filter_map(|part| match part {
            ResponsePart::File(part) => Some(&part.content),
            _ => None,
        })
    }

    /// Returns the images that the model made.
    pub fn images(&self) -> impl Iterator<Item = &Binary> {
        self.files().filter(|file| file.media_type.starts_with("image/"))
    }
}

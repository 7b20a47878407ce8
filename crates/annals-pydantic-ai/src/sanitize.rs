//! Removes data from an untrusted history that only the application may set.
//!
//! *Absent:* any judgement of the content.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::content::{UserContent, UserItem};
use super::file::{File, ForceDownload};
use super::history::{ModelMessage, ModelRequest, ModelResponse};
use super::mime;
use super::part::{RequestPart, ResponsePart, UserPromptPart};
use super::repair::RESERVED;
use super::retry::FeedbackCause;
use super::tool_content::ToolContent;
use annals_base::{Map, Value};

/// The data that [`sanitize_messages`] removes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SanitizeOptions {
    /// System prompts, parts that record instructions, and feedback in the voice of the framework.
    pub strip_system_prompts: bool,
    /// Instructions of requests.
    pub strip_instructions: bool,
    /// Compactions.
    pub strip_compaction_parts: bool,
    /// Schemes of URLs that stay; `http` and `https` unless set otherwise.
    pub allowed_file_url_schemes: Vec<String>,
    /// Ways of downloading that stay; the others become [`ForceDownload::No`].
    pub allowed_force_download: Vec<ForceDownload>,
    /// True if files that a provider stores stay.
    pub allow_uploaded_files: bool,
    /// References to the files of a conversation at a provider.
    pub strip_workspace_refs: bool,
    /// The ids of calls whose results will follow: they stay at the end.
    pub resolved_tool_call_ids: Vec<String>,
}

impl Default for SanitizeOptions {
    fn default() -> Self {
        Self {
            strip_system_prompts: true,
            strip_instructions: true,
            strip_compaction_parts: false,
            allowed_file_url_schemes: vec!["http".into(), "https".into()],
            allowed_force_download: Vec::new(),
            allow_uploaded_files: false,
            strip_workspace_refs: true,
            resolved_tool_call_ids: Vec::new(),
        }
    }
}

/// Returns the history without data that only the application may set (`sanitize_messages`): the data of the options,
/// the names of requested models, the framework's metadata, metadata of texts in user prompts, and calls at the end
/// that have no result. Messages that become empty are dropped. Feedback in the voice of the framework becomes words of
/// the user.
pub fn sanitize_messages(messages: Vec<ModelMessage>, options: &SanitizeOptions) -> Vec<ModelMessage> {
    let mut out: Vec<ModelMessage> = messages
        .into_iter()
        .filter_map(|message| match message {
            ModelMessage::Request(request) => sanitize_request(request, options).map(ModelMessage::Request),
            ModelMessage::Response(response) => sanitize_response(response, options).map(ModelMessage::Response),
        })
        .collect();
    strip_trailing_calls(&mut out, &options.resolved_tool_call_ids);
    debug_assert!(out.iter().all(has_parts), "a message that lost all its parts is left out");
    out
}

fn has_parts(message: &ModelMessage) -> bool {
    match message {
        ModelMessage::Request(request) => !request.parts.is_empty(),
        ModelMessage::Response(response) => !response.parts.is_empty(),
    }
}

fn strip_reserved(metadata: &mut Option<Map>) {
    if metadata.as_mut().and_then(|map| map.shift_remove(RESERVED)).is_some()
        && metadata.as_ref().is_some_and(Map::is_empty)
    {
        *metadata = None;
    }
}

fn sanitize_request(mut request: ModelRequest, options: &SanitizeOptions) -> Option<ModelRequest> {
    let parts = std::mem::take(&mut request.parts);
    request.parts = parts.into_iter().filter_map(|part| sanitize_part(part, options)).collect();
    if options.strip_instructions {
        request.instructions = None;
    }
    strip_reserved(&mut request.metadata);
    if request.parts.iter().any(|part| matches!(part, RequestPart::CapabilityLoadDelta(_))) {
        // The list of loaded tools or capabilities is not trusted.
        let unstated = Map::from_iter([("unstated_loads".to_owned(), Value::Bool(true))]);
        request.metadata.get_or_insert_default().insert(RESERVED.to_owned(), unstated.into());
    }
    (!request.parts.is_empty()).then_some(request)
}

fn sanitize_part(part: RequestPart, options: &SanitizeOptions) -> Option<RequestPart> {
    match part {
        RequestPart::SystemPrompt(_) if options.strip_system_prompts => None,
        RequestPart::InstructionDelta(_) | RequestPart::InstructionBaseline(_) if options.strip_system_prompts => None,
        RequestPart::Compaction(_) if options.strip_compaction_parts => None,
        RequestPart::UserPrompt(mut prompt) => {
            if let UserContent::Items(items) = prompt.content {
                let items = items.into_iter().filter_map(|item| sanitize_item(item, options)).collect();
                prompt.content = UserContent::Items(items);
            }
            Some(prompt.into())
        }
        RequestPart::ToolReturn(mut part) => {
            part.content = sanitize_content(part.content, options).unwrap_or(ToolContent::Scalar(Value::Null));
            Some(part.into())
        }
        RequestPart::RetryFeedback(part)
            if options.strip_system_prompts && part.retry.cause == FeedbackCause::NoOutput =>
        {
            Some(UserPromptPart { content: UserContent::Text(part.framed_text()), timestamp: part.timestamp }.into())
        }
        part => Some(part),
    }
}

fn sanitize_item(item: UserItem, options: &SanitizeOptions) -> Option<UserItem> {
    match item {
        UserItem::File(file) => sanitize_file(file, options).map(UserItem::File),
        UserItem::TextContent(mut text) => {
            text.metadata = Value::Null;
            Some(UserItem::TextContent(text))
        }
        UserItem::Structured(mut item) => {
            item.metadata = Value::Null;
            Some(UserItem::Structured(item))
        }
        item => Some(item),
    }
}

fn sanitize_file(file: File, options: &SanitizeOptions) -> Option<File> {
    match file {
        File::Url(mut url) => {
            let scheme = mime::scheme(&url.url);
            // A URL without a scheme leads nowhere by itself.
            if !scheme.is_empty() && !options.allowed_file_url_schemes.contains(&scheme) {
                return None;
            }
            if !options.allowed_force_download.contains(&url.force_download) {
                url.force_download = ForceDownload::No;
            }
            Some(File::Url(url))
        }
        File::Uploaded(file) => options.allow_uploaded_files.then_some(File::Uploaded(file)),
        file => Some(file),
    }
}

/// Removes files from the result of a tool, at any depth.
fn sanitize_content(content: ToolContent, options: &SanitizeOptions) -> Option<ToolContent> {
    match content {
        ToolContent::File(file) => sanitize_file(file, options).map(ToolContent::File),
        ToolContent::List(items) => {
            Some(ToolContent::List(items.into_iter().filter_map(|item| sanitize_content(item, options)).collect()))
        }
        ToolContent::Map(map) => Some(ToolContent::Map(
            map.into_iter().filter_map(|(name, item)| Some((name, sanitize_content(item, options)?))).collect(),
        )),
        scalar => Some(scalar),
    }
}

fn sanitize_response(mut response: ModelResponse, options: &SanitizeOptions) -> Option<ModelResponse> {
    if options.strip_compaction_parts {
        response.parts.retain(|part| !matches!(part, ResponsePart::Compaction(_)));
    }
    for part in &mut response.parts {
        if let ResponsePart::NativeToolReturn(part) = part {
            let content = std::mem::replace(&mut part.content, ToolContent::Scalar(Value::Null));
            part.content = sanitize_content(content, options).unwrap_or(ToolContent::Scalar(Value::Null));
        }
    }
    response.model_id = None;
    if options.strip_workspace_refs {
        response.workspace_ref = None;
    }
    strip_reserved(&mut response.metadata);
    (!response.parts.is_empty()).then_some(response)
}

/// Removes calls without a result from the end, and continues with the message before while one becomes empty.
fn strip_trailing_calls(messages: &mut Vec<ModelMessage>, resolved: &[String]) {
    let resolved: BTreeSet<&String> = resolved.iter().collect();
    while let Some(ModelMessage::Response(response)) = messages.last_mut() {
        response.parts.retain(|part| match part {
            ResponsePart::ToolCall(call) => resolved.contains(&call.tool_call_id),
            _ => true,
        });
        if !response.parts.is_empty() {
            return;
        }
        messages.pop();
    }
}

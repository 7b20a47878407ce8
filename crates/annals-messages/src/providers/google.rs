//! Answers of Google's models, through either of its interfaces.
//!
//! *Absent:* a guess at what data are whose MIME type is not given.

use super::{call_chunks, call_ids, calls_besides};
use crate::blocks::Annotation;
use crate::blocks::draft::{Draft, kind_of, non_standard, object_in, truthy_in, value_or};
use crate::blocks::passes::google::{code, code_result, file, function_call};
use crate::blocks::passes::text_block;
use crate::data_block::split_data_uri;
use crate::text::py_str;
use crate::{Content, Message, MessageError, ensure_id};
use annals_base::{IdSource, Map, Value};
use data_encoding::BASE64;

pub(super) fn translate(message: &Message, ids: &mut IdSource) -> Result<Vec<Map>, MessageError> {
    let (mut blocks, audio_last): (Vec<Map>, bool) = match &message.content {
        Content::Text(text) if text.is_empty() => (Vec::new(), true),
        Content::Text(text) => (vec![text_block(text)], true),
        Content::Blocks(content) => {
            let read =
                |(at, item)| block(item).map_err(|error: MessageError| error.within(format_args!("content[{at}]")));
            (content.iter().enumerate().map(read).collect::<Result<_, _>>()?, false)
        }
    };
    cite(message, &mut blocks, ids);
    let mut calls = calls_besides(message, &call_ids(&blocks));
    for call in &mut calls {
        // The content of a stream does not hold the calls: their order is that of the chunks.
        let id = call.get("id").and_then(Value::as_str);
        let chunks = call_chunks(message).iter().rev().filter(|chunk| chunk.id.as_deref() == id);
        if let Some(index) = chunks.filter_map(|chunk| chunk.index).next() {
            call.insert("index".into(), format!("lc_tc_{index}").into());
        }
    }
    let audio = match message.additional_kwargs.get("audio") {
        Some(Value::Bytes(bytes)) if !bytes.is_empty() => {
            Some(Draft::of("audio").set("base64", BASE64.encode(bytes)).set("mime_type", "audio/wav").done())
        }
        _ => None,
    };
    if audio_last {
        blocks.extend(calls.into_iter().chain(audio));
    } else {
        blocks.extend(audio.into_iter().chain(calls));
    }
    blocks.extend(refusal(&message.response_metadata));
    Ok(blocks)
}

/// Returns the refusal that the metadata report: Google blocked the answer, or the question.
fn refusal(metadata: &Map) -> Option<Map> {
    let reason = |value: &Value| py_str(value).rsplit('.').next().map(str::to_owned);
    let finish = truthy_in(metadata, "finish_reason").and_then(reason);
    let finish = finish.filter(|reason| matches!(reason.as_str(), "SAFETY" | "PROHIBITED_CONTENT" | "BLOCKLIST"));
    let feedback = object_in(metadata, "prompt_feedback");
    let block = feedback.and_then(|feedback| truthy_in(feedback, "block_reason")).and_then(reason);
    let block = block.filter(|reason| !reason.is_empty() && reason != "BLOCKED_REASON_UNSPECIFIED");
    if finish.is_none() && block.is_none() {
        return None;
    }
    let words = truthy_in(metadata, "finish_message").cloned().unwrap_or_else(|| "".into());
    let draft = Draft::of("refusal").set("refusal", words);
    let draft = draft.maybe_extra("finish_reason", finish.map(Value::from).as_ref());
    Some(draft.maybe_extra("block_reason", block.map(Value::from).as_ref()).done())
}

fn block(item: &Value) -> Result<Map, MessageError> {
    let item = match item {
        Value::Map(item) => item,
        Value::Str(text) => return Ok(text_block(text)),
        other => return Ok(Draft::of("non_standard").set("value", other.clone()).done()),
    };
    let mut block = match kind_of(item) {
        "text" => item.clone(),
        "image_url" => image(item)?,
        "function_call" => function_call(item),
        "file_data" => file(item),
        "thinking" => {
            let draft = Draft::of("reasoning").set("reasoning", value_or(item, "thinking", ""));
            draft.maybe_extra("signature", truthy_in(item, "signature")).done()
        }
        "executable_code" => code(item),
        kind @ "code_execution_result" => code_result(item).extra("block_type", kind).done(),
        _ => non_standard(item.clone()),
    };
    if let Some(index) = item.get("index").filter(|index| !index.is_null()) {
        block.or_insert_with("index".into(), || index.clone());
    }
    Ok(block)
}

/// The address of a picture is a `data:` address, or the data themselves in base64.
fn image(item: &Map) -> Result<Map, MessageError> {
    let url = object_in(item, "image_url").and_then(|image| truthy_in(image, "url")).and_then(Value::as_str);
    let Some(url) = url else {
        return Err(MessageError::value("Image URL not a data URI; appending as non-standard block."));
    };
    let first_line = |data: &'_ str| data.find('\n').unwrap_or(data.len());
    match split_data_uri(url).map(|uri| (uri.mime_type, &uri.data[..first_line(uri.data)])) {
        Some((mime_type, data)) if !data.is_empty() => {
            Ok(Draft::of("image").set("base64", data).set("mime_type", mime_type).done())
        }
        _ if is_base64(url) => Ok(Draft::of("image").set("base64", url).done()),
        _ => Ok(non_standard(item.clone())),
    }
}

fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    text.len().is_multiple_of(4) && digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// Says of the first text where it comes from.
fn cite(message: &Message, blocks: &mut [Map], ids: &mut IdSource) {
    let metadata = object_in(&message.response_metadata, "grounding_metadata");
    let citations = metadata.map(|metadata| citations(metadata, ids)).unwrap_or_default();
    let text = blocks.iter_mut().find(|block| kind_of(block) == "text");
    if let Some(text) = text.filter(|_| !citations.is_empty()) {
        text.insert("annotations".into(), citations.into());
    }
}

/// Returns the citations that Google's grounding metadata amount to: one for each place of the answer and each source
/// that supports it. Unknown formats are passed over.
///
/// # Example
/// ```
/// use annals_base::{IdSource, Value};
/// use annals_messages::blocks::Annotation;
/// use annals_messages::grounding_citations;
///
/// let metadata = Value::from(serde_json::json!({
///     "grounding_chunks": [{"web": {"uri": "https://example.com", "title": "Example"}}],
///     "grounding_supports": [{"segment": {"start_index": 0, "end_index": 4}, "grounding_chunk_indices": [0]}],
/// }));
/// let citations = grounding_citations(metadata.as_map().unwrap(), &mut IdSource::from_seed(1));
/// let Annotation::Citation(citation) = &citations[0] else { panic!("a citation") };
/// assert_eq!((citation.title.as_deref(), citation.end_index), (Some("Example"), Some(4)));
/// ```
pub fn grounding_citations(metadata: &Map, ids: &mut IdSource) -> Vec<Annotation> {
    citations(metadata, ids).into_iter().map(|map| Annotation::from(Value::Map(map))).collect()
}

fn citations(metadata: &Map, ids: &mut IdSource) -> Vec<Map> {
    let sources = list(metadata, "grounding_chunks");
    let queries = value_or(metadata, "web_search_queries", Value::List(Vec::new()));
    let mut citations = Vec::new();
    for support in list(metadata, "grounding_supports").iter().filter_map(Value::as_map) {
        for index in list(support, "grounding_chunk_indices") {
            let source = index.as_int().and_then(|at| sources.get(usize::try_from(at).ok()?));
            citations.extend(source.map(|source| citation(support, source, index, &queries, ids)));
        }
    }
    citations
}

fn list<'a>(map: &'a Map, name: &str) -> &'a [Value] {
    map.get(name).and_then(Value::as_list).unwrap_or_default()
}

fn citation(support: &Map, source: &Value, index: &Value, queries: &Value, ids: &mut IdSource) -> Map {
    let place = |name: &str| source.get(name).and_then(Value::as_map);
    let (maps, web) = (place("maps"), place("web"));
    let either = |name: &str| [maps, web].into_iter().flatten().find_map(|place| truthy_in(place, name)).cloned();
    let segment = object_in(support, "segment");
    let segment = |name: &str| segment.and_then(|segment| segment.get(name)).filter(|value| !value.is_null()).cloned();
    let scores = truthy_in(support, "confidence_scores").cloned().unwrap_or(Value::List(Vec::new()));
    let mut google = Map::from_iter([
        ("web_search_queries".to_owned(), queries.clone()),
        ("grounding_chunk_index".to_owned(), index.clone()),
        ("confidence_scores".to_owned(), scores),
    ]);
    if let Some(id) = maps.and_then(|maps| truthy_in(maps, "placeId")) {
        google.insert("place_id".into(), id.clone());
    }
    Draft::of("citation")
        .set("id", ensure_id(None, ids))
        .maybe("url", either("uri"))
        .maybe("title", either("title"))
        .maybe("start_index", segment("start_index"))
        .maybe("end_index", segment("end_index"))
        .maybe("cited_text", segment("text"))
        .extra("google_ai_metadata", google)
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_whole_groups_and_padding_at_the_end() {
        for good in ["QUJD", "QUI=", "QQ==", "+/+/"] {
            assert!(is_base64(good), "{good}");
        }
        for bad in ["QUJ", "Q===", "QU=D", "QUJD=", "QUJD====", "QU D", "https://a.b", "äääö"] {
            assert!(!is_base64(bad), "{bad}");
        }
    }
}

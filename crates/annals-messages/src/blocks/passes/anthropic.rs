//! Documents and images of Anthropic: a block with a `source`.
//!
//! *Absent:* answers of Anthropic's models.

use crate::MessageError;
use crate::blocks::draft::{Draft, kind_of, object_in, value_or};
use annals_base::{IdSource, Map, Value};

pub(super) fn convert(block: &Map, _: &mut IdSource) -> Result<Option<Map>, MessageError> {
    let kind = match kind_of(block) {
        "document" => "file",
        "image" => "image",
        _ => return Ok(None),
    };
    let Some(source) = object_in(block, "source") else { return Ok(None) };
    let Some(from) = source.get("type").and_then(Value::as_str) else { return Ok(None) };
    let draft = match from {
        "base64" => {
            let (Some(data), Some(mime_type)) = (source.get("data"), source.get("media_type")) else { return Ok(None) };
            Draft::of(kind).set("base64", data.clone()).set("mime_type", mime_type.clone())
        }
        "url" if source.contains_key("url") => Draft::of(kind).copy("url", source),
        "file" if source.contains_key("file_id") => Draft::of(kind).maybe("id", source.get("file_id").cloned()),
        "text" if kind == "file" && source.contains_key("data") => Draft::of("text-plain")
            .maybe("text", source.get("data").cloned())
            .set("mime_type", value_or(block, "media_type", "text/plain")),
        _ => return Ok(None),
    };
    Ok(Some(draft.extras_except(block, &["type", "source"]).done()))
}

//! Blocks that carry data: pictures, sounds, files.
//!
//! *Absent:* typed blocks, and the conversion of a block into another form.

use annals_base::{Map, Value};

/// Returns whether this is a block of data: `image`, `video`, `audio`, `text-plain` or `file`, in the standard form or
/// in the older one with a `source_type` (`is_data_content_block` of LangChain).
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::is_data_content_block;
///
/// let is_data = |json: serde_json::Value| is_data_content_block(Value::from(json).as_map().unwrap());
/// assert!(is_data(serde_json::json!({"type": "image", "url": "https://example.com/a.png"})));
/// assert!(!is_data(serde_json::json!({"type": "text", "text": "hi"})));
/// ```
pub fn is_data_content_block(block: &Map) -> bool {
    if !matches!(kind(block), Some("image" | "video" | "audio" | "text-plain" | "file")) {
        return false;
    }
    if ["url", "base64", "file_id", "text"].iter().any(|name| block.contains_key(name)) {
        return true;
    }
    let data = match block.get("source_type").and_then(Value::as_str) {
        Some("base64") => "data",
        Some("id") => "id",
        // Without a `url`, which was looked for above.
        _ => return false,
    };
    block.contains_key(data)
}

/// The medium of a data block of OpenAI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenAiData {
    /// A picture (`image_url`).
    Image,
    /// A sound (`input_audio`).
    Audio,
    /// A file (`file`).
    File,
}

/// Returns the medium of a data block in the format of OpenAI's Chat Completions; `None` for any other block
/// (`is_openai_data_block` of LangChain).
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::{OpenAiData, openai_data_block};
///
/// let block = Value::from(serde_json::json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}));
/// assert_eq!(openai_data_block(block.as_map().unwrap()), Some(OpenAiData::Image));
/// ```
pub fn openai_data_block(block: &Map) -> Option<OpenAiData> {
    let inner = |name: &str| block.get(name).and_then(Value::as_map);
    let text = |map: &Map, name: &str| matches!(map.get(name), Some(Value::Str(_)));
    let (found, what) = match kind(block)? {
        "image_url" => {
            let plain = block.keys().all(|name| matches!(name.as_str(), "type" | "image_url" | "detail"));
            (plain && inner("image_url").is_some_and(|image| text(image, "url")), OpenAiData::Image)
        }
        "input_audio" => {
            let audio = inner("input_audio");
            (audio.is_some_and(|audio| text(audio, "data") && text(audio, "format")), OpenAiData::Audio)
        }
        "file" => {
            let file = inner("file");
            (file.is_some_and(|file| text(file, "file_data") || text(file, "file_id")), OpenAiData::File)
        }
        _ => return None,
    };
    found.then_some(what)
}

/// The parts of a `data:` address in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataUri<'a> {
    /// The MIME type.
    pub mime_type: &'a str,
    /// The data as base64.
    pub data: &'a str,
}

/// Reads an address of the form `data:MIME;base64,DATA`; one newline at the end is cut.
///
/// # Example
/// ```
/// use annals_messages::parse_data_uri;
///
/// let uri = parse_data_uri("data:image/png;base64,AAAA").unwrap();
/// assert_eq!((uri.mime_type, uri.data), ("image/png", "AAAA"));
/// assert!(parse_data_uri("https://example.com/a.png").is_none());
/// ```
pub fn parse_data_uri(uri: &str) -> Option<DataUri<'_>> {
    let found = split_data_uri(uri.strip_suffix('\n').unwrap_or(uri))?;
    (!found.data.contains('\n')).then_some(found)
}

/// Splits such an address, whatever the data are.
pub(super) fn split_data_uri(uri: &str) -> Option<DataUri<'_>> {
    let (mime_type, rest) = uri.strip_prefix("data:")?.split_once(';')?;
    let data = rest.strip_prefix("base64,")?;
    (!mime_type.is_empty() && !data.is_empty()).then_some(DataUri { mime_type, data })
}

fn kind(block: &Map) -> Option<&str> {
    block.get("type")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(json: serde_json::Value) -> Map {
        let Value::Map(map) = Value::from(json) else { panic!("an object") };
        map
    }

    #[test]
    fn data_blocks_of_both_forms_are_told_from_others() {
        for data in [
            json!({"type": "video", "file_id": null}),
            json!({"type": "text-plain", "text": "t"}),
            json!({"type": "image", "source_type": "base64", "data": "d"}),
            json!({"type": "file", "source_type": "id", "id": "f"}),
            json!({"type": "file", "source_type": "text", "url": "t"}),
        ] {
            assert!(is_data_content_block(&map(data.clone())), "{data}");
        }
        for other in [
            json!({"url": "u"}),
            json!({"type": "text", "text": "t"}),
            json!({"type": "image", "source_type": "base64", "id": "d"}),
            json!({"type": "image", "source_type": "text", "data": "t"}),
        ] {
            assert!(!is_data_content_block(&map(other.clone())), "{other}");
        }
    }

    #[test]
    fn data_blocks_of_openai_need_their_inner_object() {
        let what = |json| openai_data_block(&map(json));
        assert_eq!(
            what(json!({"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}, "x": 1})),
            Some(OpenAiData::Audio)
        );
        assert_eq!(what(json!({"type": "file", "file": {"file_id": "f"}})), Some(OpenAiData::File));
        for other in [
            json!({"type": "image_url", "image_url": "u"}),
            json!({"type": "image_url", "image_url": {"url": "u"}, "cache": 1}),
            json!({"type": "input_audio", "input_audio": {"data": "d"}}),
            json!({"type": "file", "file": {"filename": "f"}}),
            json!({"type": 5}),
        ] {
            assert_eq!(what(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn an_address_has_a_type_and_data() {
        assert_eq!(parse_data_uri("data:a/b;base64,x\n"), Some(DataUri { mime_type: "a/b", data: "x" }));
        for bad in
            ["data:;base64,x", "data:a/b;base64,", "data:a/b,x", "data:a;b;base64,x", "data:a/b;base64,x\ny", "x"]
        {
            assert_eq!(parse_data_uri(bad), None, "{bad}");
        }
    }
}

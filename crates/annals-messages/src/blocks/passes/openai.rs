//! Data blocks of OpenAI's Chat Completions: `image_url`, `input_audio`, `file`.
//!
//! *Absent:* answers of OpenAI's models.

use crate::MessageError;
use crate::blocks::draft::{object_in, others};
use crate::blocks::factory::factory;
use crate::{OpenAiData, openai_data_block, parse_data_uri};
use annals_base::{IdSource, Map, Value};

pub(super) fn convert(block: &Map, ids: &mut IdSource) -> Result<Option<Map>, MessageError> {
    let Some(what) = openai_data_block(block) else { return Ok(None) };
    let (kind, name, prefix) = match what {
        OpenAiData::Image => ("image", "image_url", "image_url_"),
        OpenAiData::Audio => ("audio", "input_audio", "audio_"),
        OpenAiData::File => ("file", "file", "file_"),
    };
    let Some(inner) = object_in(block, name) else { return Ok(None) };
    let Some((mut fields, known)) = data(what, inner) else { return Ok(None) };
    fields.extend(others(block, &["type", name]));
    fields.extend(others(inner, known).map(|(name, value)| match name.as_str() {
        "detail" if what == OpenAiData::Image => (name, value),
        _ => (format!("{prefix}{name}"), value),
    }));
    factory(kind, fields, ids).map(Some)
}

/// Returns where the data are, and the names that say so; none if they are in no known form.
fn data(what: OpenAiData, inner: &Map) -> Option<(Map, &'static [&'static str])> {
    let text = |name: &str| inner.get(name).and_then(Value::as_str).unwrap_or_default();
    let fields = |fields: &[(&str, &str)]| -> Map {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
    };
    Some(match what {
        OpenAiData::Image => match parse_data_uri(text("url")) {
            Some(uri) => (fields(&[("base64", uri.data), ("mime_type", uri.mime_type)]), &["url"]),
            None => (fields(&[("url", text("url"))]), &["url"]),
        },
        OpenAiData::Audio => {
            let mime_type = format!("audio/{}", text("format"));
            (fields(&[("base64", text("data")), ("mime_type", &mime_type)]), &["data", "format"])
        }
        OpenAiData::File if inner.contains_key("file_id") => {
            (Map::from_iter([("file_id".to_owned(), inner["file_id"].clone())]), &["file_id"])
        }
        OpenAiData::File => {
            // LangChain takes every file in a message for a PDF.
            let uri = parse_data_uri(text("file_data"))?;
            let mut fields = fields(&[("base64", uri.data), ("mime_type", "application/pdf")]);
            fields.insert("filename".into(), inner.get("filename").cloned().unwrap_or_default());
            (fields, &["file_data", "filename"])
        }
    })
}

//! Recognising blocks without knowing who wrote them.
//!
//! Each block goes through five passes in a fixed order; a pass converts the blocks it recognises and wraps the blocks
//! that no pass knows as `non_standard`, which the next pass opens again. *Absent:* answers of a known provider.

mod anthropic;
pub(crate) mod google;
mod openai;
mod v0;

use super::draft::{Draft, kind_of, need, non_standard};
use super::is_known;
use crate::{Content, MessageError};
use annals_base::{IdSource, Map, Value};

/// Converts a block if it recognises it.
type Pass = fn(&Map, &mut IdSource) -> Result<Option<Map>, MessageError>;

const PASSES: [Pass; 5] = [v0::convert, openai::convert, anthropic::convert, google::convert, google::single];

/// Returns the blocks of a content.
pub(super) fn read(content: &Content, ids: &mut IdSource) -> Result<Vec<Map>, MessageError> {
    match content {
        Content::Text(text) if text.is_empty() => Ok(Vec::new()),
        Content::Text(text) => Ok(vec![text_block(text)]),
        Content::Blocks(blocks) => {
            let read = |(at, block): (usize, &Value)| {
                read_one(block, ids).map_err(|error| error.within(format_args!("content[{at}]")))
            };
            blocks.iter().enumerate().map(read).collect()
        }
    }
}

pub(crate) fn text_block(text: &str) -> Map {
    Draft::of("text").set("text", text).done()
}

fn read_one(block: &Value, ids: &mut IdSource) -> Result<Map, MessageError> {
    let block = match block {
        Value::Map(block) => block.clone(),
        Value::Str(text) => return Ok(text_block(text)),
        // `Content` holds texts and objects only.
        other => return Ok(Draft::of("non_standard").set("value", other.clone()).done()),
    };
    PASSES.iter().try_fold(block, |block, pass| {
        let block = opened(block)?;
        Ok(match pass(&block, ids)? {
            Some(converted) => converted,
            None if is_known(kind_of(&block)) => block,
            None => non_standard(block),
        })
    })
}

/// Opens a wrapper: its value may be known to a pass. The id and index of the wrapper are lost.
fn opened(block: Map) -> Result<Map, MessageError> {
    if kind_of(&block) != "non_standard" {
        return Ok(block);
    }
    Ok(match need(&block, "value")? {
        Value::Map(value) => value,
        _ => block,
    })
}

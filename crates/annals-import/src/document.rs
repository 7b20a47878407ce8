//! JSON documents: whole, or an array item by item.
//!
//! Invariant: of an array, one item is in memory.

use std::fmt;
use std::io::{BufRead, Read};
use std::ops::ControlFlow;
use std::path::Path;

use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::Value as Json;

use crate::error::ImportError;
use crate::lines;

/// Opens a document behind its byte order mark.
fn open(path: &Path) -> Result<Box<dyn BufRead>, ImportError> {
    let mut input = lines::open(path)?;
    let mark = "\u{feff}".as_bytes();
    // A file that cannot be decompressed fails when it is parsed.
    if input.fill_buf().is_ok_and(|bytes| bytes.starts_with(mark)) {
        input.consume(mark.len());
    }
    Ok(input)
}

/// Returns a document, or nothing if the file is not JSON.
pub(crate) fn whole(path: &Path) -> Result<Option<Json>, ImportError> {
    let mut bytes = Vec::new();
    if open(path)?.read_to_end(&mut bytes).is_err() {
        return Ok(None);
    }
    Ok(serde_json::from_str(&String::from_utf8_lossy(&bytes)).ok())
}

/// Gives the items of an array to a function, until it breaks. Returns false if the file is not a whole JSON array.
pub(crate) fn each_item(
    path: &Path,
    mut item: impl FnMut(usize, Json) -> Result<ControlFlow<()>, ImportError>,
) -> Result<bool, ImportError> {
    let mut visitor = ItemVisitor { item: &mut item, failed: None, has_broken: false };
    let mut deserializer = serde_json::Deserializer::from_reader(open(path)?);
    let parsed = deserializer.deserialize_seq(&mut visitor);
    let (failed, has_broken) = (visitor.failed, visitor.has_broken);
    match failed {
        Some(error) => Err(error),
        None => Ok(has_broken || (parsed.is_ok() && deserializer.end().is_ok())),
    }
}

struct ItemVisitor<'a> {
    item: &'a mut dyn FnMut(usize, Json) -> Result<ControlFlow<()>, ImportError>,
    failed: Option<ImportError>,
    has_broken: bool,
}

impl<'de> Visitor<'de> for &mut ItemVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        while let Some(json) = items.next_element()? {
            match (self.item)(at, json) {
                Ok(ControlFlow::Continue(())) => at += 1,
                Ok(ControlFlow::Break(())) => {
                    self.has_broken = true;
                    return Err(A::Error::custom("enough items"));
                }
                Err(error) => {
                    self.failed = Some(error);
                    return Err(A::Error::custom("the receiver failed"));
                }
            }
        }
        Ok(())
    }
}

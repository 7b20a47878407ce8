//! JSON documents: whole, or an array item by item.
//!
//! Invariant: of an array, one item of bounded length is in memory, and of a document, a bounded number of bytes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;
use std::path::Path;

use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::Value as Json;

use crate::error::{ImportError, SourceFault, SourceLimit};
use crate::json::{self, LongIntegers, NodeCount};
use crate::limits::RECORD_BYTES_MAX;
use crate::lines;

/// Opens a document behind its byte order mark.
fn open(path: &Path) -> Box<dyn BufRead> {
    let mut input = lines::open(path);
    let mark = "\u{feff}".as_bytes();
    // A file that cannot be decompressed fails when it is parsed.
    if input.fill_buf().is_ok_and(|bytes| bytes.starts_with(mark)) {
        input.consume(mark.len());
    }
    input
}

/// Returns a document.
pub(crate) fn whole(path: &Path) -> Result<Json, SourceFault> {
    let mut bytes = Vec::new();
    open(path).take(RECORD_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(SourceLimit::new("bytes of a document", RECORD_BYTES_MAX as u64).into());
    }
    json::parse_bytes(&bytes)
}

/// Gives the items of an array to a function, until it breaks. Returns the fault for which the array
/// ended early, if the file is not a whole JSON array.
pub(crate) fn each_item(
    path: &Path,
    mut item: impl FnMut(usize, Json) -> Result<ControlFlow<()>, ImportError>,
) -> Result<Option<SourceFault>, ImportError> {
    let budget = ItemBudget::default();
    budget.renew();
    let mut visitor = ItemVisitor { item: &mut item, budget: &budget, failed: None, has_broken: false };
    let input = BudgetedInput { inner: open(path), budget: &budget };
    let input = IntegerInput { inner: input, integers: LongIntegers::default(), ready: Vec::new(), taken: 0 };
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let parsed = deserializer.deserialize_seq(&mut visitor);
    let (failed, has_broken) = (visitor.failed, visitor.has_broken);
    if let Some(error) = failed {
        return Err(error);
    }
    budget.renew();
    if has_broken || (parsed.is_ok() && deserializer.end().is_ok()) {
        return Ok(None);
    }
    let fault = budget.fault.take();
    Ok(Some(fault.unwrap_or(SourceFault::NotJson)))
}

/// The bytes that an item may still have, its values, and the fault of the input.
#[derive(Default)]
struct ItemBudget {
    left: Cell<usize>,
    nodes: RefCell<NodeCount>,
    fault: RefCell<Option<SourceFault>>,
}

impl ItemBudget {
    /// Begins an item.
    fn renew(&self) {
        self.left.set(RECORD_BYTES_MAX);
        self.nodes.borrow_mut().count = 0;
    }

    /// Takes bytes of the input.
    fn spend(&self, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(bytes.len() <= self.left.get(), "no more is read than an item may have");
        self.left.set(self.left.get() - bytes.len());
        let mut nodes = self.nodes.borrow_mut();
        nodes.add(bytes);
        nodes.check().map_err(SourceLimit::into_io)
    }
}

/// Input that fails when an item has more bytes than its budget.
struct BudgetedInput<'a> {
    inner: Box<dyn BufRead>,
    budget: &'a ItemBudget,
}

impl Read for BudgetedInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.budget.left.get();
        let read = match left {
            0 => Err(SourceLimit::new("bytes of an item", RECORD_BYTES_MAX as u64).into_io()),
            _ => {
                let end = buffer.len().min(left);
                self.inner.read(&mut buffer[..end])
            }
        };
        match read.and_then(|read| self.budget.spend(&buffer[..read]).map(|()| read)) {
            Ok(read) => Ok(read),
            Err(error) => {
                *self.budget.fault.borrow_mut() = Some(error.into());
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

/// Input whose integers keep all digits.
struct IntegerInput<'a> {
    inner: BudgetedInput<'a>,
    integers: LongIntegers,
    /// The bytes that are written, and the number of those that were read.
    ready: Vec<u8>,
    taken: usize,
}

impl Read for IntegerInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
            // No more than asked for, as the bytes count for the item that is read.
            match self.inner.read(buffer)? {
                0 => self.integers.finish(&mut self.ready),
                read => self.integers.push(&buffer[..read], &mut self.ready),
            }
            if self.ready.is_empty() && !self.integers.is_open() {
                return Ok(0);
            }
        }
        let part = (self.ready.len() - self.taken).min(buffer.len());
        buffer[..part].copy_from_slice(&self.ready[self.taken..self.taken + part]);
        self.taken += part;
        Ok(part)
    }
}

struct ItemVisitor<'a> {
    item: &'a mut dyn FnMut(usize, Json) -> Result<ControlFlow<()>, ImportError>,
    budget: &'a ItemBudget,
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
            self.budget.renew();
        }
        Ok(())
    }
}

//! Checks of rows: a changed column, or a row in the place of another one, is noticed where the row is read.
//!
//! A check is the low half of the XXH3-64 of the columns, each with its type; docs/format.md names the columns.
//! *Absent:* the contents of values, which have a check of their own in `payload`.

use crate::base::internal::hash::{check64, keyed_checksum};
use rusqlite::types::ValueRef;
use std::sync::Arc;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const REAL: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

/// The keys of a file, of which one may be that of the checksums.
pub(crate) trait ChecksumKey {
    /// Returns the key of the checksums, if the file has one.
    fn of_checksums(&self) -> Option<&[u8; 32]>;
}

impl<K: ChecksumKey> ChecksumKey for Arc<K> {
    fn of_checksums(&self) -> Option<&[u8; 32]> {
        K::of_checksums(self)
    }
}

/// Bytes that most rows have with their types.
const ROOM: usize = 256;

/// The check of one row, or of the rows that share one.
pub(crate) struct RowCheck(Vec<u8>);

impl RowCheck {
    /// Begins the check of a row of a table.
    pub(crate) fn of(table: &str) -> Self {
        let mut check = Self(Vec::with_capacity(ROOM));
        check.text(table);
        check
    }

    /// Adds a column that holds an integer.
    pub(crate) fn int(&mut self, column: i64) -> &mut Self {
        self.0.push(INTEGER);
        self.0.extend_from_slice(&column.to_le_bytes());
        self
    }

    /// Adds a column that holds an integer or NULL.
    pub(crate) fn maybe_int(&mut self, column: Option<i64>) -> &mut Self {
        self.value(column.map_or(ValueRef::Null, ValueRef::Integer))
    }

    /// Adds a column that holds text.
    pub(crate) fn text(&mut self, column: &str) -> &mut Self {
        self.value(ValueRef::Text(column.as_bytes()))
    }

    /// Adds a column that holds text or NULL.
    pub(crate) fn maybe_text(&mut self, column: Option<&str>) -> &mut Self {
        self.value(column.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())))
    }

    /// Adds a column of any type.
    pub(crate) fn value(&mut self, column: ValueRef<'_>) -> &mut Self {
        let (kind, bytes) = match column {
            ValueRef::Null => {
                self.0.push(NULL);
                return self;
            }
            ValueRef::Integer(column) => return self.int(column),
            ValueRef::Real(column) => {
                self.0.push(REAL);
                self.0.extend_from_slice(&column.to_bits().to_le_bytes());
                return self;
            }
            ValueRef::Text(bytes) => (TEXT, bytes),
            ValueRef::Blob(bytes) => (BLOB, bytes),
        };
        self.0.push(kind);
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns the check, as its column holds it.
    pub(crate) fn finish(&self) -> i64 {
        check32(&self.0)
    }

    /// Returns the check of rows that refer to values: with the key of the checksums, if the file has one.
    pub(crate) fn finish_keyed(&self, keys: &impl ChecksumKey) -> i64 {
        let Some(key) = keys.of_checksums() else { return self.finish() };
        let [a, b, c, d, ..] = keyed_checksum(key, &self.0);
        i64::from(i32::from_le_bytes([a, b, c, d]))
    }
}

/// Returns the low half of the XXH3-64 of bytes as a signed integer.
fn check32(bytes: &[u8]) -> i64 {
    i64::from(check64(bytes) as u32 as i32)
}

/// Returns the check of a payload as its row holds it: that of its fields, bound to its id.
pub(crate) fn payload_column(id: i64, fields: i64) -> i64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&fields.to_le_bytes());
    check32(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::keys::Keys;

    #[test]
    fn each_column_and_its_type_changes_the_check() {
        let check = |add: &dyn Fn(&mut RowCheck)| {
            let mut check = RowCheck::of("item");
            add(&mut check);
            check.finish()
        };
        let checks = [
            check(&|_| ()),
            check(&|row| _ = row.maybe_int(None)),
            check(&|row| _ = row.int(0)),
            check(&|row| _ = row.int(1)),
            check(&|row| _ = row.value(ValueRef::Real(1.0))),
            check(&|row| _ = row.text("1")),
            check(&|row| _ = row.value(ValueRef::Blob(b"1"))),
            check(&|row| _ = row.text("1").text("")),
            check(&|row| _ = row.text("").text("1")),
            RowCheck::of("version").finish(),
            payload_column(1, 2),
            payload_column(2, 1),
        ];
        for (at, one) in checks.iter().enumerate() {
            assert!(checks[..at].iter().all(|other| other != one), "{at}");
            assert_eq!(i64::from(*one as i32), *one, "a check has 32 bits");
        }
    }

    #[test]
    fn a_check_without_a_key_is_that_of_the_bytes() {
        let keys = Keys::default();
        let check = |number| {
            let mut check = RowCheck::of("item");
            check.int(number);
            assert_eq!(check.finish_keyed(&keys), check.finish());
            check.finish_keyed(&keys)
        };
        assert_ne!(check(1), check(2));
    }
}

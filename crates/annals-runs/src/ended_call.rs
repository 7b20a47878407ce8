//! The stored end of a called task: the record of the call, and the value that it returned.
//!
//! The record alone is the special write [`SpecialWrite::Call`]. If the returned value is small, a plain write of the
//! same channel holds both, which takes one row in place of two. Invariant: what is encoded is decoded as the same.
//! *Absent:* what the hash of the arguments is made of.

use crate::base::{Codec, Encoded, Payload, Timestamp};
use crate::special::SpecialWrite;
use crate::store::StoreError;
use crate::store::batch::{NewWrite, WriteValue};

/// MessagePack's marker of a list of four, the record, and of five, the record and the returned value.
const RECORD: u8 = 0x94;
const RECORD_AND_VALUE: u8 = 0x95;

/// The bytes from which on a returned value has a write of its own: it may be stored already, and large values are
/// stored once a file.
const SHARED_BYTES: usize = 1_024;

/// The record of a call that has ended, with the value that it returned if one write holds both.
///
/// # Example
/// ```
/// use annals::base::{Encoded, Timestamp};
/// use annals_runs::EndedCall;
/// use annals_runs::prelude::*;
///
/// # fn main() -> Result<()> {
/// let began = Timestamp::from_micros(1_795_223_817_000_000);
/// let call = EndedCall::new(7, began, 250, 0);
/// let write = call.write_with(0, &Encoded::encode(&"receipt 17")?.into())?.expect("it is small");
/// let found = EndedCall::of(&write.value).expect("it is a call");
/// assert_eq!((found.began, found.returned), (began, Some(&b"\xaareceipt 17"[..])));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedCall<'a> {
    /// The hash of its arguments.
    pub arguments: u32,
    /// The time at which it began.
    pub began: Timestamp,
    /// Its duration in microseconds.
    pub took: i64,
    /// The attempt of its caller, from 0.
    pub caller_attempt: u32,
    /// The returned value, MessagePack, if it is in the same write.
    pub returned: Option<&'a [u8]>,
}

impl<'a> EndedCall<'a> {
    /// Makes the record of a call: the hash of its arguments, its begin, its duration in microseconds, and the attempt
    /// of its caller, from 0.
    pub fn new(arguments: u32, began: Timestamp, took: i64, caller_attempt: u32) -> Self {
        Self { arguments, began, took, caller_attempt, returned: None }
    }

    /// Decodes the value of a write of a call; `None` if it is of another write.
    pub fn of(value: &'a WriteValue) -> Option<Self> {
        let WriteValue::One(Payload { codec: Codec::MsgPack, data, .. }) = value else { return None };
        let (marker, mut rest) = data.split_first()?;
        let mut next = || take_int(&mut rest);
        let (arguments, began, took, caller_attempt) = (next()?, next()?, next()?, next()?);
        let returned = match *marker {
            RECORD if rest.is_empty() => None,
            RECORD_AND_VALUE if !rest.is_empty() => Some(rest),
            _ => return None,
        };
        Some(Self {
            arguments: arguments.try_into().ok()?,
            began: Timestamp::from_micros(began),
            took,
            caller_attempt: caller_attempt.try_into().ok()?,
            returned,
        })
    }

    /// Returns the special write of the record.
    ///
    /// # Errors
    /// [`StoreError::Codec`], never for a record.
    pub fn write(&self) -> Result<NewWrite, StoreError> {
        Ok(SpecialWrite::Call.write(WriteValue::One(Payload::new(self.encode()?))))
    }

    /// Returns the write that holds the record and a returned value. `None` if the value needs a write of its own: it
    /// is large, has an index, or is not MessagePack.
    ///
    /// # Errors
    /// [`StoreError::Codec`], never for a record.
    pub fn write_with(&self, index: i32, returned: &Payload) -> Result<Option<NewWrite>, StoreError> {
        let is_small = returned.index.is_none() && (1..SHARED_BYTES).contains(&returned.data.len());
        if !is_small || returned.codec != Codec::MsgPack {
            return Ok(None);
        }
        let mut data = self.encode()?;
        data[0] = RECORD_AND_VALUE;
        data.extend_from_slice(&returned.data);
        Ok(Some(NewWrite::new(index, SpecialWrite::Call.channel(), WriteValue::One(Payload::new(data)))))
    }

    fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let record = (self.arguments, self.began.as_micros(), self.took, self.caller_attempt);
        let data = Encoded::encode(&record)?.bytes;
        debug_assert_eq!(data.first(), Some(&RECORD), "a record has four members");
        Ok(data)
    }
}

/// Takes an integer in MessagePack from the front.
fn take_int(rest: &mut &[u8]) -> Option<i64> {
    let (&marker, after) = rest.split_first()?;
    let width = match marker {
        0x00..=0x7f | 0xe0..=0xff => 0,
        0xcc | 0xd0 => 1,
        0xcd | 0xd1 => 2,
        0xce | 0xd2 => 4,
        0xcf | 0xd3 => 8,
        _ => return None,
    };
    let (bytes, after) = after.split_at_checked(width)?;
    *rest = after;
    let Some(&first) = bytes.first() else { return Some(i64::from(marker.cast_signed())) };
    let is_signed = marker >= 0xd0;
    let mut number = [if is_signed && first >= 0x80 { 0xff } else { 0 }; 8];
    number[8 - width..].copy_from_slice(bytes);
    let number = i64::from_be_bytes(number);
    (is_signed || number >= 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: u32, began: i64, took: i64) -> EndedCall<'static> {
        EndedCall::new(arguments, Timestamp::from_micros(began), took, 3)
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for number in [0, 1, 127, 128, 255, 256, 65_535, 65_536, i64::from(u32::MAX), 1 << 32, i64::MAX] {
            for call in [call(9, number, 0), call(9, -number, number), call(u32::MAX, i64::MIN, number)] {
                assert_eq!(EndedCall::of(&call.write().unwrap().value), Some(call));
                let with = call.write_with(4, &Payload::new(vec![0xc0])).unwrap().unwrap();
                assert_eq!(with.index, 4);
                assert_eq!(EndedCall::of(&with.value), Some(EndedCall { returned: Some(&[0xc0]), ..call }));
            }
        }
    }

    #[test]
    fn a_value_that_is_large_or_foreign_has_a_write_of_its_own() {
        let with = |returned: Payload| call(1, 2, 3).write_with(0, &returned).unwrap().is_some();
        let bytes = |length: usize| Payload::new(vec![0xc0; length]);
        assert!(with(bytes(1)) && with(bytes(SHARED_BYTES - 1)) && !with(bytes(SHARED_BYTES)) && !with(bytes(0)));
        assert!(!with(bytes(1).with_codec(Codec::Foreign(2))) && !with(bytes(1).with_index(Default::default())));
    }

    #[test]
    fn bytes_of_another_form_are_no_call() {
        let of = |data: &[u8]| EndedCall::of(&WriteValue::One(Payload::new(data.to_vec()))).map(|call| call.arguments);
        assert!(of(&[0x94, 1, 2, 3, 4]).is_some() && of(&[0x95, 1, 2, 3, 4, 5]).is_some());
        for data in
            [&[][..], &[0x94], &[0x94, 1, 2, 3], &[0x94, 1, 2, 3, 4, 5], &[0x95, 1, 2, 3, 4], &[0x93, 1, 2, 3, 4]]
        {
            assert_eq!(of(data), None, "{data:?}");
        }
        assert_eq!(of(&[0x94, 0xff, 2, 3, 4]), None, "a hash is not negative");
        assert_eq!(of(&[0x94, 1, 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0, 3, 4]), None, "above all timestamps");
        assert_eq!(of(&[0x94, 1, 0xcd, 2]), None, "cut short");
        assert_eq!(of(&[0x94, 1, 0xa1, 2, 3, 4]), None, "a text");
    }
}

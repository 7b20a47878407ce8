//! The encoded form in which every value is stored: MessagePack with names.
//!
//! Invariant: [`Encoded::encode`] refuses what [`decode_bytes`] would refuse, so that a stored value can be read again.
//! *Absent:* the bytes of foreign codecs, which are stored verbatim and never read here.

mod msgpack;
mod reader;
mod tree;
mod writer;

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned};

use crate::limits::VALUE_BYTES_MAX;
use crate::{Value, ValueView};
use reader::ValueReader;

/// The format of the bytes of a stored value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Codec {
    /// MessagePack with names (`rmp-serde`): the format that `annals` writes.
    #[default]
    MsgPack,
    /// Bytes of an importer or a binding, stored verbatim; the number tells which one.
    Foreign(u8),
}

impl Codec {
    /// Returns the number under which the codec is stored.
    pub fn to_tag(self) -> u8 {
        match self {
            Self::MsgPack => 0,
            Self::Foreign(tag) => tag,
        }
    }

    /// Returns the codec stored under a number.
    pub fn from_tag(tag: u8) -> Self {
        if tag == 0 { Self::MsgPack } else { Self::Foreign(tag) }
    }
}

/// A value in its stored form. The two fields are the definition: a literal makes one from bytes that were stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoded {
    /// The format of the bytes.
    pub codec: Codec,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    /// Encodes a value as MessagePack with names.
    ///
    /// # Errors
    /// [`CodecError::Encode`] if the type refuses, [`CodecError::TooLarge`] past [`VALUE_BYTES_MAX`] bytes,
    /// [`CodecError::TooDeep`] past [`VALUE_DEPTH_MAX`](crate::limits::VALUE_DEPTH_MAX) lists, maps and extensions
    /// inside one another, [`CodecError::TooManyParts`] past [`VALUE_NODES_MAX`](crate::limits::VALUE_NODES_MAX) values
    /// (names of members count as values here).
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, CodecError> {
        let mut encoding = BoundedBytes { bytes: Vec::with_capacity(ENCODING_BYTES), length: 0 };
        let encoded = rmp_serde::encode::write_named(&mut encoding, value);
        encoded.map_err(|e| CodecError::Encode { reason: e.to_string() })?;
        if encoding.length > VALUE_BYTES_MAX {
            return Err(CodecError::TooLarge { bytes: encoding.length });
        }
        Self::checked(encoding.bytes)
    }

    /// Encodes a dynamic value, as [`Encoded::encode`] does.
    pub(crate) fn encode_view(view: &ValueView<'_>) -> Result<Self, CodecError> {
        match writer::written(view, VIEW_BYTES) {
            Some(bytes) => Ok(Self { codec: Codec::MsgPack, bytes }),
            None => Self::encode(view),
        }
    }

    fn checked(bytes: Vec<u8>) -> Result<Self, CodecError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(CodecError::TooLarge { bytes: bytes.len() });
        }
        msgpack::check_bounds(&bytes)?;
        debug_assert!(!bytes.is_empty(), "every value has an encoding, null included");
        Ok(Self { codec: Codec::MsgPack, bytes })
    }

    /// Returns the encoding of null, the value of a channel that only records that it was written.
    ///
    /// # Example
    /// ```
    /// use annals_base::{Encoded, Value};
    ///
    /// assert_eq!(Encoded::null(), Encoded::encode(&Value::Null)?);
    /// # Ok::<(), annals_base::CodecError>(())
    /// ```
    pub fn null() -> Self {
        Self { codec: Codec::MsgPack, bytes: vec![rmp::Marker::Null.to_u8()] }
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// As [`decode_bytes`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        decode_bytes(self.codec, &self.bytes)
    }
}

/// The room with which an encoding begins: that of most values, which then does not grow.
const ENCODING_BYTES: usize = 64;

/// The room with which the encoding of a record begins: that of most messages with ids and metadata.
const VIEW_BYTES: usize = 320;

/// The bytes of an encoding up to the limit of a value. Those past it are counted and dropped: a value that is refused
/// takes no memory beside its own.
#[derive(Debug)]
struct BoundedBytes {
    bytes: Vec<u8>,
    /// The number of all bytes.
    length: usize,
}

impl std::io::Write for BoundedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.length = self.length.saturating_add(bytes.len());
        if self.length <= VALUE_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.bytes = Vec::new();
        }
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Decodes a value from borrowed bytes, within the limits on depth and parts.
///
/// # Errors
/// [`CodecError`] if the codec is foreign, or the bytes are not one whole value of the type.
pub fn decode_bytes<T: DeserializeOwned>(codec: Codec, bytes: &[u8]) -> Result<T, CodecError> {
    readable(codec)?;
    read(ValueReader::of_bytes(bytes))
}

/// Decodes a typed value out of a dynamic one.
pub(crate) fn decode_tree<T: DeserializeOwned>(value: &Value) -> Result<T, CodecError> {
    read(ValueReader::of_value(value))
}

fn read<'a, T: Deserialize<'a>>(mut reader: ValueReader<'a>) -> Result<T, CodecError> {
    let value = T::deserialize(&mut reader).map_err(|error| match error {
        CodecError::Decode { reason, .. } => CodecError::Decode { expected: std::any::type_name::<T>(), reason },
        other => other,
    })?;
    reader.end().map(|()| value)
}

/// Decodes a dynamic value from borrowed bytes: the result of [`decode_bytes`], without serde in between.
///
/// # Errors
/// [`CodecError`] if the codec is foreign, or the bytes are not one whole value within the limits.
pub fn decode_value(codec: Codec, bytes: &[u8]) -> Result<Value, CodecError> {
    readable(codec)?;
    Ok(msgpack::read_value(bytes)?)
}

fn readable(codec: Codec) -> Result<(), CodecError> {
    match codec {
        Codec::MsgPack => Ok(()),
        Codec::Foreign(tag) => Err(CodecError::ForeignCodec { tag }),
    }
}

/// A value could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The type refused to be serialized.
    #[error("the value cannot be encoded: {reason}")]
    Encode {
        /// The reason of the serializer.
        reason: String,
    },
    /// The bytes are not a value of the expected type.
    #[error("the stored value is not a valid {expected}: {reason}")]
    Decode {
        /// The Rust type that was asked for.
        expected: &'static str,
        /// The reason of the deserializer.
        reason: String,
    },
    /// The value is longer than a stored value may be.
    #[error("the value has {bytes} bytes encoded, the limit is {VALUE_BYTES_MAX}")]
    TooLarge {
        /// The encoded length.
        bytes: usize,
    },
    /// The value has more lists and maps inside one another than a stored value may have.
    #[error("the value is nested deeper than {limit} levels, which is the limit")]
    TooDeep {
        /// The limit: levels of lists, maps and extensions.
        limit: usize,
    },
    /// The value has more values in it than a stored value may have.
    #[error("the value has more than {limit} parts, which is the limit")]
    TooManyParts {
        /// The limit: values, containers included.
        limit: usize,
    },
    /// The value was written by an importer or a binding and is not read by this library.
    #[error("the value is in foreign codec {tag}: its bytes are stored verbatim, but this library does not read them")]
    ForeignCodec {
        /// The number of the codec.
        tag: u8,
    },
}

impl serde::ser::Error for CodecError {
    fn custom<T: std::fmt::Display>(reason: T) -> Self {
        Self::Encode { reason: reason.to_string() }
    }
}

impl serde::de::Error for CodecError {
    fn custom<T: std::fmt::Display>(reason: T) -> Self {
        Self::Decode { expected: "value", reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests;

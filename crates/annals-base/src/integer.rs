//! Integers that do not fit into 64 bits, which Python and JSON have.
//!
//! *Absent:* computing with them. They are retained, compared and written.

use super::Value;
use super::limits::INTEGER_DIGITS_MAX;

/// The MessagePack extension that holds one: its bytes are the decimal digits, with `-` before them if it is negative.
pub(crate) const BIG_INTEGER_EXT: i8 = 105;

impl Value {
    /// Returns the integer with these decimal digits, however large; `None` if they are not an integer as JSON writes
    /// one, or more than [`INTEGER_DIGITS_MAX`].
    ///
    /// # Example: an integer of 30 digits
    /// ```
    /// use annals_base::Value;
    ///
    /// let large = Value::from_digits("123456789012345678901234567890").unwrap();
    /// assert_eq!((large.kind(), large.big_integer()), ("int", Some("123456789012345678901234567890")));
    /// assert_eq!(Value::from_digits("-12"), Some(Value::Int(-12)));
    /// assert_eq!(Value::from_digits("012"), None);
    /// ```
    pub fn from_digits(digits: &str) -> Option<Self> {
        if !is_integer(digits) {
            return None;
        }
        let small = digits.parse().map(Self::Int).ok().or_else(|| digits.parse().map(Self::UInt).ok());
        let value = small.unwrap_or_else(|| Self::Ext(BIG_INTEGER_EXT, digits.as_bytes().to_vec()));
        debug_assert!(value.big_integer().is_none_or(|read| read == digits), "the digits are read as they were given");
        Some(value)
    }

    /// Returns the decimal digits of an integer that does not fit into 64 bits.
    pub fn big_integer(&self) -> Option<&str> {
        match self {
            Self::Ext(BIG_INTEGER_EXT, bytes) => std::str::from_utf8(bytes).ok().filter(|digits| is_integer(digits)),
            _ => None,
        }
    }

    /// Returns a short text of the value for an error message: at most 64 characters of a text, the value of a number,
    /// the type of anything else.
    pub fn excerpt(&self) -> String {
        match self {
            Self::Str(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::UInt(_) | Self::Float(_) => self.to_json().to_string(),
            other => match other.big_integer() {
                Some(digits) => digits.chars().take(64).collect(),
                None => format!("a {}", other.kind()),
            },
        }
    }

    /// Returns whether one of them is in the value.
    pub fn has_big_integer(&self) -> bool {
        match self {
            Self::List(items) => items.iter().any(Self::has_big_integer),
            Self::Map(map) => map.values().any(Self::has_big_integer),
            other => other.big_integer().is_some(),
        }
    }
}

fn is_integer(digits: &str) -> bool {
    let whole = digits.strip_prefix('-').unwrap_or(digits);
    let plain = whole == "0" || !whole.starts_with('0');
    plain && (1..=INTEGER_DIGITS_MAX).contains(&whole.len()) && whole.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Encoded;

    #[test]
    fn only_what_is_too_large_is_kept_as_digits() {
        for (digits, value) in [
            ("0", Value::Int(0)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("18446744073709551615", Value::UInt(u64::MAX)),
        ] {
            assert_eq!(Value::from_digits(digits), Some(value));
        }
        for digits in ["18446744073709551616", "-9223372036854775809", &"9".repeat(INTEGER_DIGITS_MAX)] {
            let value = Value::from_digits(digits).unwrap();
            assert_eq!((value.kind(), value.big_integer()), ("int", Some(digits)));
            assert_eq!(value.to_json(), serde_json::json!({"$int": digits}));
            assert_eq!(Encoded::encode(&value).unwrap().decode::<Value>().unwrap(), value);
        }
        for none in ["", "-", "1.0", "1e5", "00", "+1", "x", &"9".repeat(INTEGER_DIGITS_MAX + 1)] {
            assert_eq!(Value::from_digits(none), None, "{none}");
        }
    }

    #[test]
    fn a_foreign_extension_of_that_number_stays_one() {
        let foreign = Value::Ext(BIG_INTEGER_EXT, vec![0xff, 0]);
        assert_eq!((foreign.kind(), foreign.big_integer()), ("ext", None));
    }
}

//! Dates, times of day and durations in pydantic's format: ISO 8601, with the offset that was given or none.
//!
//! The parser is `speedate`, which is pydantic's own. *Absent:* time zones by name, and the system clock.

use std::fmt::{self, Write as _};

use speedate::{Date, DateTimeConfig, MicrosecondsPrecisionOverflowBehavior, TimeConfig};

use super::macros::serde_impls;
use super::wire::{Wire, WireReader};
use annals_base::DefaultSource;
use annals_base::{Timestamp, Value};

/// A date and time of day in microseconds, with its offset from UTC if that is known (`datetime` of Python).
///
/// Two values are equal if their texts are: the same instant with another offset is another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DateTime {
    /// Microseconds since 1970-01-01T00:00:00 in local time.
    local: i64,
    /// Minutes east of UTC.
    offset: Option<i16>,
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 0001-01-01T00:00:00 and 9999-12-31T23:59:59.999999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800 * SECOND..=253_402_300_800 * SECOND - 1;

/// Pydantic's configuration: digits after the microseconds are dropped, a number is a time in UTC.
fn config() -> DateTimeConfig {
    let truncate = MicrosecondsPrecisionOverflowBehavior::Truncate;
    let time = TimeConfig { microseconds_precision_overflow_behavior: truncate, unix_timestamp_offset: Some(0) };
    DateTimeConfig::builder().time_config(time).build()
}

impl DateTime {
    /// Parses RFC 3339 with the liberties of pydantic, a date, or a number of seconds (milliseconds above 2e10) since
    /// 1970. Returns `None` for any other text, and for years outside of 1 to 9999.
    ///
    /// # Example: the offset is retained
    /// ```
    /// use annals_pydantic_ai::DateTime;
    ///
    /// let time = DateTime::parse("2025-01-02 03:04:05.1234567+0530").expect("a date and time");
    /// assert_eq!(time.to_string(), "2025-01-02T03:04:05.123456+05:30");
    /// assert_eq!(DateTime::parse("2025-01-02").expect("a date").to_string(), "2025-01-02T00:00:00");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let parsed = speedate::DateTime::parse_bytes_with_config(text.as_bytes(), &config());
        parsed.ok().map_or_else(
            || Self::new(Date::parse_bytes_rfc3339(text.as_bytes()).ok()?.timestamp(), 0, None),
            Self::from_parsed,
        )
    }

    fn from_parsed(parsed: speedate::DateTime) -> Option<Self> {
        Self::new(parsed.timestamp(), parsed.time.microsecond, parsed.time.tz_offset)
    }

    /// Returns the value of a number of seconds in local time; `offset` is in seconds.
    fn new(seconds: i64, microsecond: u32, offset: Option<i32>) -> Option<Self> {
        debug_assert!(microsecond < 1_000_000, "the parser normalises the fraction: {microsecond}");
        debug_assert!(offset.is_none_or(|offset| offset % 60 == 0), "an offset has whole minutes: {offset:?}");
        let local = seconds.checked_mul(SECOND)?.checked_add(i64::from(microsecond))?;
        let offset = offset.map(|seconds| i16::try_from(seconds / 60)).transpose().ok()?;
        RANGE.contains(&local).then_some(Self { local, offset })
    }

    fn from_int(number: i64) -> Option<Self> {
        speedate::DateTime::from_timestamp_with_config(number, 0, &config()).ok().and_then(Self::from_parsed)
    }

    fn from_float(number: f64) -> Option<Self> {
        let parsed = number.is_finite().then(|| speedate::DateTime::from_float_with_config(number, &config()))?;
        parsed.ok().and_then(Self::from_parsed)
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z; a value without an offset is taken to be in UTC.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_micros(self.local - i64::from(self.offset.unwrap_or(0)) * 60 * SECOND)
    }
}

/// In UTC; a timestamp outside of the years 1 to 9999 becomes the nearest one inside.
impl From<Timestamp> for DateTime {
    fn from(timestamp: Timestamp) -> Self {
        Self { local: timestamp.as_micros().clamp(*RANGE.start(), *RANGE.end()), offset: Some(0) }
    }
}

/// `2025-01-02T03:04:05.678901Z`: the fraction unless it is zero, then `Z` for UTC, `+hh:mm`, or nothing.
impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DateTimeText::of(*self)?.as_str()?)
    }
}

/// The text of a date and time, on the stack.
struct DateTimeText {
    bytes: [u8; 32],
    length: usize,
}

impl DateTimeText {
    fn of(time: DateTime) -> Result<Self, fmt::Error> {
        debug_assert!(RANGE.contains(&time.local), "a year of four digits");
        let mut text = Self { bytes: [0; 32], length: 0 };
        write!(text, "{}", Timestamp::from_micros(time.local))?;
        let utc = &text.bytes[..text.length];
        let local = utc.strip_suffix(b"Z").unwrap_or(utc);
        text.length = local.strip_suffix(b".000000").unwrap_or(local).len();
        match time.offset {
            None => {}
            Some(0) => text.write_str("Z")?,
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(text, "{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)?;
            }
        }
        Ok(text)
    }

    fn as_str(&self) -> Result<&str, fmt::Error> {
        std::str::from_utf8(&self.bytes[..self.length]).map_err(|_| fmt::Error)
    }
}

impl fmt::Write for DateTimeText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Wire for DateTime {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Str(text) => Self::parse(text),
            Value::Int(n) => Self::from_int(*n),
            Value::Float(x) => Self::from_float(*x),
            _ => None,
        };
        read.or_else(|| reader.fail("a date and time", &value))
    }

    fn write(&self) -> Value {
        // Without a formatter around it: every message has some.
        let text = DateTimeText::of(*self);
        debug_assert!(text.is_ok(), "each value has a text");
        text.as_ref().ok().and_then(|text| text.as_str().ok()).unwrap_or_default().into()
    }

    fn absent(defaults: &mut DefaultSource<'_>) -> Option<Self> {
        Some(defaults.now().into())
    }
}

/// A duration in microseconds, which may be negative (`timedelta` of Python).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeDelta(i64);

impl TimeDelta {
    /// Returns the duration of that many microseconds.
    pub const fn from_micros(us: i64) -> Self {
        Self(us)
    }

    /// Returns the microseconds.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Parses ISO 8601 (`P1DT1H1M1.25S`; a year has 365 days and a month 30) or `1 day, 01:02:03.5`. Returns `None` for
    /// any other text, and for more microseconds than 64 bits hold (292,000 years).
    pub fn parse(text: &str) -> Option<Self> {
        let parsed = speedate::Duration::parse_bytes_with_config(text.as_bytes(), &config().time_config).ok()?;
        let size = i64::from(parsed.day).checked_mul(DAY)?;
        let size = size.checked_add(i64::from(parsed.second) * SECOND + i64::from(parsed.microsecond))?;
        Some(Self(if parsed.positive { size } else { -size }))
    }

    fn from_seconds(seconds: f64) -> Option<Self> {
        let whole = seconds.trunc();
        let fits = seconds.is_finite() && whole.abs() < (i64::MAX / SECOND) as f64;
        fits.then(|| Self(whole as i64 * SECOND + ((seconds - whole) * 1e6).round() as i64))
    }
}

/// `P1DT1H1M1.25S`, `-PT1.5S`, `PT0S`; 365 days are written as a year.
impl fmt::Display for TimeDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.unsigned_abs();
        let narrow = |number: u64| u32::try_from(number).map_err(|_| fmt::Error);
        let (seconds, microsecond) = (micros / 1_000_000, narrow(micros % 1_000_000)?);
        let (day, second) = (narrow(seconds / 86_400)?, narrow(seconds % 86_400)?);
        speedate::Duration { positive: self.0 >= 0, day, second, microsecond }.fmt(f)
    }
}

impl Wire for TimeDelta {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Str(text) => Self::parse(text),
            Value::Int(n) => Self::from_seconds(*n as f64),
            Value::Float(x) => Self::from_seconds(*x),
            _ => None,
        };
        read.or_else(|| reader.fail("a duration", &value))
    }

    fn write(&self) -> Value {
        self.to_string().into()
    }
}

serde_impls!(DateTime, TimeDelta);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datetimes_parse_and_print_as_in_pydantic() {
        for (text, written) in [
            ("2025-01-02T03:04", "2025-01-02T03:04:00"),
            ("2025-01-02_03:04:05", "2025-01-02T03:04:05"),
            ("2025-01-02 03:04:05.1234567Z", "2025-01-02T03:04:05.123456Z"),
            ("2025-01-02t03:04:05,5z", "2025-01-02T03:04:05.500000Z"),
            ("2025-01-02T03:04:05-23:59", "2025-01-02T03:04:05-23:59"),
            ("2025-01-02T03:04:05\u{2212}05:00", "2025-01-02T03:04:05-05:00"),
            ("2025-01-02T03:04:05-0000", "2025-01-02T03:04:05Z"),
            ("2024-02-29", "2024-02-29T00:00:00"),
            ("0001-01-01T00:00:00", "0001-01-01T00:00:00"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
            ("20000000001", "1970-08-20T11:33:20.001000Z"),
            ("20250102", "1970-08-23T09:01:42Z"),
            ("1735786800.5", "2025-01-02T03:00:00.500000Z"),
            ("-1.5", "1969-12-31T23:59:58.500000Z"),
            (".5", "1970-01-01T00:00:00.500000Z"),
            ("+5", "1970-01-01T00:00:05Z"),
            ("5.", "1970-01-01T00:00:05Z"),
            ("-20000000001.5", "1969-05-14T12:26:39.998500Z"),
        ] {
            assert_eq!(DateTime::parse(text).map(|time| time.to_string()).as_deref(), Some(written), "{text}");
            assert_eq!(DateTime::parse(written).unwrap().to_string(), written);
        }
        for bad in [
            "",
            "x",
            "2025-02-29",
            "0000-01-01",
            "2025-01-02T24:00",
            "2025-01-02T03:04:60Z",
            "2025-01-02T03:04:05+24:00",
            "2025-01-02T03:04:05+05",
            "2025-01-02T",
            "2025-01-02T03:04:05.Z",
            "2025-01-02T03:04:05 ",
            " 5",
            "\u{2212}5",
            "1e9",
            "nan",
            "253402300800000",
            "99999999999999999999999",
            "2025-1-2",
            "2025-01-02T03:04:05+05:60",
            "2025-13-01",
        ] {
            assert_eq!(DateTime::parse(bad), None, "{bad}");
        }
        assert_eq!(DateTime::from_float(1_735_786_800.123_456_7).unwrap().to_string(), "2025-01-02T03:00:00.123457Z");
        assert_eq!(DateTime::from_float(1_735_786_800_123.5).unwrap().to_string(), "2025-01-02T03:00:00.123500Z");
        let local = DateTime::parse("1970-01-01T01:00:00+01:00").unwrap();
        assert_eq!(local.timestamp(), Timestamp::default());
        assert_eq!(DateTime::from(Timestamp::from_micros(1)).to_string(), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn durations_parse_and_print_as_in_pydantic() {
        for (text, written) in [
            ("PT1.5S", "PT1.5S"),
            ("-PT1S", "-PT1S"),
            ("+PT1S", "PT1S"),
            ("P1Y2M3DT4H5M6S", "P1Y63DT4H5M6S"),
            ("P2W", "P14D"),
            ("P1DT", "P1D"),
            ("P1.5D", "P1DT12H"),
            ("PT0.0000015S", "PT0.000002S"),
            ("1 day, 01:02:03", "P1DT1H2M3S"),
            ("1 days 01:02", "P1DT1H2M"),
            ("01:02:03.5", "PT1H2M3.5S"),
            ("3 days", "P3D"),
            ("1d", "P1D"),
            ("PT0S", "PT0S"),
            ("P400D", "P1Y35D"),
            ("-1 day, 01:02:03", "-P1DT1H2M3S"),
            ("2d,01:02", "P2DT1H2M"),
            ("P0.5Y", "P182DT12H"),
            ("P1.23456789D", "P1DT5H37M46.665696S"),
            ("P280000Y", "P280000Y"),
        ] {
            assert_eq!(TimeDelta::parse(text).map(|s| s.to_string()).as_deref(), Some(written), "{text}");
        }
        for bad in ["", "P", "PT", "p1d", "5", "1.5", "1:02", "P1D ", "PT1", "P1S", "1.5 days", "P300000Y"] {
            assert_eq!(TimeDelta::parse(bad), None, "{bad}");
        }
        assert_eq!(TimeDelta::from_seconds(90_061.25).unwrap().to_string(), "P1DT1H1M1.25S");
        assert_eq!(TimeDelta::from_seconds(-1.5).unwrap().to_string(), "-PT1.5S");
        assert_eq!(TimeDelta::from_seconds(1e12).unwrap().to_string(), "P31709Y289DT1H46M40S");
        assert_eq!(TimeDelta::from_seconds(1e20), None);
    }
}

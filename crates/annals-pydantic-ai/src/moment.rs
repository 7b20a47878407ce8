//! Moments and spans of time in the forms of pydantic: ISO 8601, with the offset that was given or none.
//!
//! *Absent:* time zones by name, and the present.

use std::fmt;

use super::macros::serde_form;
use super::wire::{Reader, Wire};
use annals_base::Fresh;
use annals_base::{Timestamp, Value};

/// A date and time of day with microseconds, and how far it is ahead of UTC, if that is known.
///
/// Two moments are equal if they are written alike: the same instant with another offset is another moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Microseconds since 1970-01-01T00:00:00 on the clock of its place.
    local: i64,
    /// Minutes ahead of UTC.
    offset: Option<i16>,
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 0001-01-01T00:00:00 and 9999-12-31T23:59:59.999999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800 * SECOND..=253_402_300_800 * SECOND - 1;
/// Above this a number counts milliseconds.
const SECONDS_MAX: f64 = 2e10;

impl Moment {
    /// Reads a text: RFC 3339 with some liberties, a date alone, or a number of seconds (milliseconds above 2e10)
    /// since 1970. `None` if it is none of them.
    ///
    /// # Example: the offset is kept
    /// ```
    /// use annals_pydantic_ai::Moment;
    ///
    /// let moment = Moment::parse("2025-01-02 03:04:05.1234567+0530").expect("it is one");
    /// assert_eq!(moment.to_string(), "2025-01-02T03:04:05.123456+05:30");
    /// assert_eq!(Moment::parse("2025-01-02").expect("a date").to_string(), "2025-01-02T00:00:00");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.replace('\u{2212}', "-");
        read_date(text.as_bytes()).or_else(|| {
            let number = text.strip_prefix(['+', '-']).unwrap_or(&text);
            let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && number.len() <= 20;
            plain.then(|| text.parse().ok().and_then(Self::from_number))?
        })
    }

    fn from_number(number: f64) -> Option<Self> {
        let per_unit = if number.abs() > SECONDS_MAX { 1e3 } else { 1e6 };
        if !number.is_finite() || number.abs() > 1e15 {
            return None;
        }
        // The fraction by itself, so that it keeps its digits beside a long whole part.
        let whole = number.floor();
        let local = (whole as i64) * (per_unit as i64) + ((number - whole) * per_unit).round() as i64;
        RANGE.contains(&local).then_some(Self { local, offset: Some(0) })
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z; a moment without offset is taken to be in UTC.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_micros(self.local - i64::from(self.offset.unwrap_or(0)) * 60 * SECOND)
    }
}

impl From<Timestamp> for Moment {
    fn from(timestamp: Timestamp) -> Self {
        Self { local: timestamp.as_micros().clamp(*RANGE.start(), *RANGE.end()), offset: Some(0) }
    }
}

/// Takes `count` digits from the front.
fn digits(text: &mut &[u8], count: usize) -> Option<i64> {
    let (front, rest) = text.split_at_checked(count)?;
    *text = rest;
    front.iter().try_fold(0, |n, byte| byte.is_ascii_digit().then(|| n * 10 + i64::from(byte - b'0')))
}

fn skip(text: &mut &[u8], any_of: &[u8]) -> Option<u8> {
    let (first, rest) = text.split_first().filter(|(first, _)| any_of.contains(first))?;
    *text = rest;
    Some(*first)
}

fn read_date(mut text: &[u8]) -> Option<Moment> {
    let text = &mut text;
    let year = digits(text, 4)?;
    skip(text, b"-")?;
    let month = digits(text, 2)?;
    skip(text, b"-")?;
    let day = digits(text, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1 || !(1..=12).contains(&month) || !(1..=days).contains(&day) {
        return None;
    }
    let midnight = days_since_1970(year, month, day) * DAY;
    if text.is_empty() {
        return Some(Moment { local: midnight, offset: None });
    }
    skip(text, b"Tt _")?;
    let time = read_time(text)?;
    let offset = read_offset(text)?;
    text.is_empty().then_some(Moment { local: midnight + time, offset })
}

/// Reads `hh:mm[:ss[.f]]` as microseconds since midnight.
fn read_time(text: &mut &[u8]) -> Option<i64> {
    let hour = digits(text, 2)?;
    skip(text, b":")?;
    let minute = digits(text, 2)?;
    let (mut second, mut micros) = (0, 0);
    if skip(text, b":").is_some() {
        second = digits(text, 2)?;
        if skip(text, b".,").is_some() {
            let mut unit = SECOND;
            while let Some(digit) = skip(text, b"0123456789") {
                unit /= 10;
                micros += i64::from(digit - b'0') * unit;
            }
            if unit == SECOND {
                return None;
            }
        }
    }
    let valid = hour < 24 && minute < 60 && second < 60;
    valid.then_some((hour * 3_600 + minute * 60 + second) * SECOND + micros)
}

fn read_offset(text: &mut &[u8]) -> Option<Option<i16>> {
    match skip(text, b"Zz+-") {
        None => Some(None),
        Some(b'Z' | b'z') => Some(Some(0)),
        Some(sign) => {
            let hours = digits(text, 2)?;
            _ = skip(text, b":");
            let minutes = digits(text, 2)?;
            let offset = i16::try_from(hours * 60 + minutes).ok().filter(|n| *n < 24 * 60 && minutes < 60)?;
            Some(Some(if sign == b'-' { -offset } else { offset }))
        }
    }
}

/// Years are counted from 1 March, so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `2025-01-02T03:04:05.678901Z`: the fraction if there is one, then `Z` for UTC, `+hh:mm`, or nothing.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utc = Timestamp::from_micros(self.local).to_string();
        let (time, fraction) = utc.trim_end_matches('Z').split_once('.').unwrap_or((&utc, "000000"));
        f.write_str(time)?;
        if fraction != "000000" {
            write!(f, ".{fraction}")?;
        }
        match self.offset {
            None => Ok(()),
            Some(0) => f.write_str("Z"),
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
            }
        }
    }
}

impl Wire for Moment {
    fn read(value: Value, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Str(text) => Self::parse(text),
            Value::Int(n) => Self::from_number(*n as f64),
            Value::Float(x) => Self::from_number(*x),
            _ => None,
        };
        read.or_else(|| reader.fail("a date and time", &value))
    }

    fn write(&self) -> Value {
        self.to_string().into()
    }

    fn absent(fresh: &mut Fresh<'_>) -> Option<Self> {
        Some(fresh.now().into())
    }
}

/// A span of time in microseconds; it may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(i64);

/// A timedelta of Python has at most so many days.
const DAYS_MAX: f64 = 999_999_999.0;

impl Span {
    /// Returns the span of that many microseconds.
    pub const fn from_micros(us: i64) -> Self {
        Self(us)
    }

    /// Returns the microseconds.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Reads ISO 8601 (`P1DT1H1M1.25S`; a year has 365 days and a month 30) or `1 day, 01:02:03.5`.
    pub fn parse(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let seconds = match text.strip_prefix('P') {
            Some(rest) => iso_seconds(rest),
            None => clock_seconds(text),
        }?;
        Self::from_seconds(if negative { -seconds } else { seconds })
    }

    fn from_seconds(seconds: f64) -> Option<Self> {
        let whole = seconds.trunc();
        // Beyond this, microseconds do not fit into 64 bits.
        let fits = seconds.is_finite() && whole.abs() < DAYS_MAX.min(100_000_000.0) * 86_400.0;
        fits.then(|| Self(whole as i64 * SECOND + ((seconds - whole) * 1e6).round() as i64))
    }
}

/// Takes a number from the front.
fn number<'a>(text: &mut &'a str) -> Option<&'a str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    (!number.is_empty()).then_some(number)
}

fn iso_seconds(mut text: &str) -> Option<f64> {
    let (mut seconds, mut count, mut in_time) = (0.0, 0, false);
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('T') {
            (text, in_time) = (rest, !in_time);
            if !in_time {
                return None;
            }
            continue;
        }
        let amount: f64 = number(&mut text)?.parse().ok()?;
        let mut chars = text.chars();
        let unit = match (chars.next()?, in_time) {
            ('Y', false) => 365.0 * 86_400.0,
            ('M', false) => 30.0 * 86_400.0,
            ('W', false) => 7.0 * 86_400.0,
            ('D', false) => 86_400.0,
            ('H', true) => 3_600.0,
            ('M', true) => 60.0,
            ('S', true) => 1.0,
            _ => return None,
        };
        text = chars.as_str();
        seconds += amount * unit;
        count += 1;
    }
    (count > 0).then_some(seconds)
}

fn clock_seconds(mut text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    if !text.get(..3).is_some_and(|start| start.ends_with(':')) {
        let days: f64 = number(&mut text)?.parse().ok()?;
        let rest = text.strip_prefix(' ').unwrap_or(text);
        let rest = rest.strip_prefix('d').or_else(|| rest.strip_prefix('D'))?;
        let rest = rest.strip_prefix("ays").or_else(|| rest.strip_prefix("ay")).unwrap_or(rest);
        text = rest.trim_start_matches([',', ' ']);
        seconds += days * 86_400.0;
        if text.is_empty() {
            return (rest.is_empty()).then_some(seconds);
        }
    }
    let mut bytes = text.as_bytes();
    let time = read_time(&mut bytes)?;
    bytes.is_empty().then_some(seconds + time as f64 / 1e6)
}

/// `P1DT1H1M1.25S`, `-PT1.5S`, `PT0S`; 365 days are written as a year.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.unsigned_abs();
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        f.write_str(if self.0 < 0 { "-P" } else { "P" })?;
        for (amount, unit) in [(days / 365, 'Y'), (days % 365, 'D')] {
            if amount > 0 {
                write!(f, "{amount}{unit}")?;
            }
        }
        if of_day > 0 || fraction > 0 || micros == 0 {
            f.write_str("T")?;
        }
        for (amount, unit) in [(of_day / 3_600, 'H'), (of_day / 60 % 60, 'M')] {
            if amount > 0 {
                write!(f, "{amount}{unit}")?;
            }
        }
        match (of_day % 60, fraction) {
            (0, 0) if micros > 0 => Ok(()),
            (seconds, 0) => write!(f, "{seconds}S"),
            (seconds, fraction) => {
                let fraction = format!("{fraction:06}");
                write!(f, "{seconds}.{}S", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl Wire for Span {
    fn read(value: Value, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Str(text) => Self::parse(text),
            Value::Int(n) => Self::from_seconds(*n as f64),
            Value::Float(x) => Self::from_seconds(*x),
            _ => None,
        };
        read.or_else(|| reader.fail("a span of time", &value))
    }

    fn write(&self) -> Value {
        self.to_string().into()
    }
}

serde_form!(Moment, Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_pydantic_writes_them() {
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
        ] {
            assert_eq!(Moment::parse(text).map(|m| m.to_string()).as_deref(), Some(written), "{text}");
            assert_eq!(Moment::parse(written).unwrap().to_string(), written);
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
            "1e9",
            "nan",
            "253402300800000",
            "99999999999999999999999",
            "2025-1-2",
            "2025-01-02T03:04:05+05:60",
            "2025-13-01",
        ] {
            assert_eq!(Moment::parse(bad), None, "{bad}");
        }
        assert_eq!(Moment::from_number(1_735_786_800.123_456_7).unwrap().to_string(), "2025-01-02T03:00:00.123457Z");
        assert_eq!(Moment::from_number(1_735_786_800_123.5).unwrap().to_string(), "2025-01-02T03:00:00.123500Z");
        let moment = Moment::parse("1970-01-01T01:00:00+01:00").unwrap();
        assert_eq!(moment.timestamp(), Timestamp::default());
        assert_eq!(Moment::from(Timestamp::from_micros(1)).to_string(), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn spans_are_written_as_pydantic_writes_them() {
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
        ] {
            assert_eq!(Span::parse(text).map(|s| s.to_string()).as_deref(), Some(written), "{text}");
        }
        for bad in ["", "P", "PT", "p1d", "5", "1.5", "1:02", "P1D ", "PT1", "P1S"] {
            assert_eq!(Span::parse(bad), None, "{bad}");
        }
        assert_eq!(Span::from_seconds(90_061.25).unwrap().to_string(), "P1DT1H1M1.25S");
        assert_eq!(Span::from_seconds(-1.5).unwrap().to_string(), "-PT1.5S");
        assert_eq!(Span::from_seconds(1e12).unwrap().to_string(), "P31709Y289DT1H46M40S");
        assert_eq!(Span::from_seconds(1e20), None);
    }
}

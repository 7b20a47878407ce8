//! Time as an argument: the only file of the library that reads a clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A timestamp: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the timestamp `us` microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(us: i64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the timestamp `duration` later; saturates.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the timestamp `duration` earlier; saturates.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// A text that is not a timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected at byte {at} of the timestamp {text:?}")]
#[non_exhaustive]
pub struct TimestampError {
    /// The refused text, cut to 64 characters.
    pub text: String,
    /// The byte of the text at which reading ended.
    pub at: usize,
    /// The element that is expected there.
    pub expected: &'static str,
}

/// Reads RFC 3339 (`2026-11-21T01:16:57.25+01:00`, also with a space for the `T`), or a date, which stands for its
/// midnight in UTC. Digits below a microsecond are dropped; second 60 is the second after second 59.
impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let mut reader = TimestampReader { bytes: text.as_bytes(), at: 0 };
        reader.timestamp().map(Self).map_err(|expected| {
            debug_assert!(reader.at <= text.len(), "reading ends in the text");
            TimestampError { text: text.chars().take(64).collect(), at: reader.at, expected }
        })
    }
}

/// Reads a timestamp byte by byte; an error names the expected element.
struct TimestampReader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl TimestampReader<'_> {
    fn timestamp(&mut self) -> Result<i64, &'static str> {
        let days = self.date()?;
        if self.at == self.bytes.len() {
            return Ok(days * 86_400_000_000);
        }
        self.one_of(b"Tt ", "T")?;
        let hour = self.number(2, 0..=23, "an hour")?;
        self.one_of(b":", "a colon")?;
        let minute = self.number(2, 0..=59, "a minute")?;
        self.one_of(b":", "a colon")?;
        let second = self.number(2, 0..=60, "a second")?;
        let micros = if self.bytes.get(self.at) == Some(&b'.') { self.fraction()? } else { 0 };
        let offset = self.offset()?;
        if self.at != self.bytes.len() {
            return Err("the end");
        }
        Ok((days * 86_400 + hour * 3_600 + minute * 60 + second - offset * 60) * 1_000_000 + micros)
    }

    /// Reads a date as days since 1970-01-01.
    fn date(&mut self) -> Result<i64, &'static str> {
        let year = self.number(4, 0..=9_999, "a year of four digits")?;
        self.one_of(b"-", "a hyphen")?;
        let month = self.number(2, 1..=12, "a month")?;
        self.one_of(b"-", "a hyphen")?;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let day = self.number(2, 1..=last, "a day of the month")?;
        // Years are counted from 1 March, so that the leap day comes last.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * month + 2) / 5 + day - 1;
        Ok(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
    }

    /// Reads a fraction of a second as microseconds.
    fn fraction(&mut self) -> Result<i64, &'static str> {
        self.at += 1;
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err("a digit");
        }
        let digit = |at: usize| if at < digits { i64::from(self.bytes[self.at + at] - b'0') } else { 0 };
        let micros = (0..6).fold(0, |micros, at| micros * 10 + digit(at));
        self.at += digits;
        Ok(micros)
    }

    /// Reads the distance from UTC in minutes.
    fn offset(&mut self) -> Result<i64, &'static str> {
        let sign = match self.one_of(b"Zz+-", "Z or an offset")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Ok(0),
        };
        let hours = self.number(2, 0..=23, "hours of the offset")?;
        self.one_of(b":", "a colon")?;
        Ok(sign * (hours * 60 + self.number(2, 0..=59, "minutes of the offset")?))
    }

    fn number(
        &mut self,
        digits: usize,
        range: std::ops::RangeInclusive<i64>,
        expected: &'static str,
    ) -> Result<i64, &'static str> {
        let found = self.bytes.get(self.at..self.at + digits).ok_or(expected)?;
        if !found.iter().all(u8::is_ascii_digit) {
            return Err(expected);
        }
        let number = found.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        if !range.contains(&number) {
            return Err(expected);
        }
        self.at += digits;
        Ok(number)
    }

    fn one_of(&mut self, any: &[u8], expected: &'static str) -> Result<u8, &'static str> {
        let found = self.bytes.get(self.at).copied().filter(|byte| any.contains(byte)).ok_or(expected)?;
        self.at += 1;
        Ok(found)
    }
}

/// ISO 8601 in UTC with microseconds: `2026-11-21T01:16:57.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, us) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
        // Civil date from days since the epoch; years are counted from 1 March so that the leap day comes last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        debug_assert!((1..=12).contains(&month) && (1..=31).contains(&day), "each day has a date");
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
        if !(0..10_000).contains(&year) {
            return write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z");
        }
        // Every message is stored with some: this takes a tenth of the time of `write!`.
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        put_digits::<4>(&mut text, 0, year);
        put_digits::<6>(&mut text, 20, us);
        for (at, number) in [(5, month), (8, day), (11, hour), (14, minute), (17, second)] {
            put_digits::<2>(&mut text, at, number);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes a number that is not negative with leading zeros, at a place of a text.
fn put_digits<const DIGITS: usize>(text: &mut [u8; 27], at: usize, number: i64) {
    let mut number = number as u32;
    for digit in (at..at + DIGITS).rev() {
        text[digit] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    debug_assert_eq!(number, 0, "it has as many digits");
}

/// A source of time. The engine takes one wherever it needs the time, so that tests decide what time it is.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present timestamp. It may step back; nothing in the store is ordered by it.
    fn now(&self) -> Timestamp;

    /// Returns the duration since a fixed timestamp, which stays the same as long as the clock lives. It does not step
    /// back; limits on how long something may take are counted by it. Default: since 1970, by [`now`](Self::now).
    fn elapsed(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.now().as_micros()).unwrap_or(0))
    }
}

/// A clock that stands still.
impl Clock for Timestamp {
    fn now(&self) -> Timestamp {
        *self
    }
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().saturating_add(since)
    }

    fn elapsed(&self) -> Duration {
        static START: std::sync::OnceLock<Stopwatch> = std::sync::OnceLock::new();
        START.get_or_init(Stopwatch::start).elapsed()
    }
}

/// Measures how long something takes, for bounds on waiting; nothing that is stored depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts to measure.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_moment_is_shown_in_iso_8601() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_795_223_817_000_000, "2026-11-21T01:16:57.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Timestamp::from_micros(us).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp::from_micros(us)));
        }
        // A year of more digits.
        assert_eq!(Timestamp::from_micros(253_402_300_799_999_999).to_string(), "9999-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::from_micros(253_402_300_800_000_000).to_string(), "10000-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_timestamp_is_read_from_rfc_3339() {
        let second = Timestamp::from_micros(1_795_223_817_000_000);
        for text in ["2026-11-21T01:16:57Z", "2026-11-21 02:46:57.0000009+01:30", "2026-11-20t20:16:57-05:00"] {
            assert_eq!(text.parse(), Ok(second), "{text}");
        }
        assert_eq!("2026-11-21".parse(), Ok(Timestamp::from_micros(1_795_219_200_000_000)));
        assert_eq!("2016-12-31T23:59:60Z".parse::<Timestamp>(), "2017-01-01T00:00:00Z".parse());
        // Each day of eight centuries, and back.
        for day in -146_097..146_097 {
            let day = Timestamp::from_micros(day * 86_400_000_000);
            assert_eq!(day.to_string().parse(), Ok(day));
        }
    }

    #[test]
    fn a_text_that_is_not_a_timestamp_is_refused_with_its_place() {
        for (text, at, expected) in [
            ("", 0, "a year of four digits"),
            ("2026-13-01", 5, "a month"),
            ("2023-02-29", 8, "a day of the month"),
            ("2026-11-21X", 10, "T"),
            ("2026-11-21T24:00:00Z", 11, "an hour"),
            ("2026-11-21T01:16:57", 19, "Z or an offset"),
            ("2026-11-21T01:16:57.Z", 20, "a digit"),
            ("2026-11-21T01:16:57+1:00", 20, "hours of the offset"),
            ("2026-11-21T01:16:57Z ", 20, "the end"),
            ("2026-11-2\u{e9}", 8, "a day of the month"),
        ] {
            let error = text.parse::<Timestamp>().unwrap_err();
            assert_eq!((error.at, error.expected), (at, expected), "{text}");
        }
    }
}

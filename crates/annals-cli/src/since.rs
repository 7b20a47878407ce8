//! A moment in the past, as an argument: `2h`, `1d12h`, `yesterday`, or a timestamp.

use std::str::FromStr;

use annals::base::Timestamp;

/// A moment, relative or absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// So many microseconds ago.
    Ago(i64),
    At(Timestamp),
}

impl Since {
    /// Returns the timestamp, given the present one.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(micros) => Timestamp::from_micros(now.as_micros().saturating_sub(micros)),
            Self::At(at) => at,
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "expected a duration such as 90s, 1h30m or 2d, yesterday, or a timestamp";
        if text == "yesterday" {
            return Ok(Self::Ago(86_400_000_000));
        }
        // A date begins with four digits and a hyphen.
        if text.as_bytes().get(4) == Some(&b'-') {
            return text.parse().map(Self::At).map_err(|_| FORMS.to_owned());
        }
        let (mut rest, mut micros) = (text, 0_i64);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: i64 = rest[..digits].parse().map_err(|_| FORMS.to_owned())?;
            let unit = rest[digits..].split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
            let seconds = match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3_600,
                "d" => 86_400,
                "w" => 7 * 86_400,
                _ => return Err(FORMS.to_owned()),
            };
            micros = micros.saturating_add(number.saturating_mul(seconds * 1_000_000));
            rest = &rest[digits + unit.len()..];
        }
        if text.is_empty() { Err(FORMS.to_owned()) } else { Ok(Self::Ago(micros)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_a_word_or_a_timestamp() {
        let now = Timestamp::from_micros(200_000_000_000_000);
        let micros = |text: &str| text.parse::<Since>().map(|since| now.as_micros() - since.at(now).as_micros());
        assert_eq!(micros("1h30m"), Ok(5_400_000_000));
        assert_eq!(micros("yesterday"), micros("1d"));
        assert!(matches!("2026-11-21T09:00:00Z".parse(), Ok(Since::At(_))));
        for wrong in ["", "h", "3", "3x", "2026-13-01", "99999999999999999999s", "1hé"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
        assert!("9999999999999999w".parse::<Since>().is_ok_and(|since| since.at(now) < now), "it saturates");
    }
}

//! Decimal numbers that keep their text: `1.10` is not `1.1`, and a sum is exact.
//!
//! Sums are rounded to 28 digits, half to even, as Python's decimals are by default. *Absent:* products, quotients,
//! infinities.

use std::cmp::Ordering;
use std::fmt;

use super::macros::serde_impls;
use super::wire::{Wire, WireReader, int_digits, without_underscores};
use crate::limits::DECIMAL_EXPONENT_MAX;
use annals_base::Value;

/// A decimal number: digits and the power of ten of the last one.
///
/// Equality is that of the text; [`Decimal::compare`] compares the numbers.
///
/// # Example: prices add up
/// ```
/// use annals_pydantic_ai::Decimal;
///
/// let price = Decimal::parse("0.10").expect("a number");
/// assert_eq!(price.add(&Decimal::parse("0.205").expect("a number")).to_string(), "0.305");
/// assert_eq!(price.to_string(), "0.10");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    /// Values 0 to 9, most significant first, no zero in front unless it is the only one.
    digits: Vec<u8>,
    exponent: i64,
}

/// Digits of a sum.
const PRECISION: usize = 28;

impl Decimal {
    /// Reads a decimal text such as `-1.10` or `1E-7`. `None` for any other, infinities included.
    pub fn parse(text: &str) -> Option<Self> {
        let text = without_underscores(text.trim())?;
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(&text);
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: Option<Vec<u8>> =
            whole.bytes().chain(fraction.bytes()).map(|byte| byte.is_ascii_digit().then(|| byte - b'0')).collect();
        let digits = digits.filter(|digits| !digits.is_empty())?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        (exponent.abs() <= DECIMAL_EXPONENT_MAX).then(|| Self::new(negative, digits, exponent))
    }

    fn new(negative: bool, mut digits: Vec<u8>, exponent: i64) -> Self {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count().min(digits.len().saturating_sub(1));
        digits.drain(..zeros);
        debug_assert!(!digits.is_empty(), "zero has a digit too");
        debug_assert!(digits.iter().all(|digit| *digit < 10), "a digit is 0 to 9: {digits:?}");
        Self { negative, digits, exponent }
    }

    /// Returns whether the number is zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.digits == [0]
    }

    /// The power of ten of the first digit.
    fn magnitude(&self) -> i64 {
        self.exponent + self.digits.len() as i64 - 1
    }

    /// Returns the sum, rounded to 28 digits.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let (large, small) = if self.magnitude() >= other.magnitude() { (self, other) } else { (other, self) };
        if small.is_zero() || large.is_zero() {
            let number = if small.is_zero() { large } else { small };
            // No more zeros than can matter.
            let zeros = (2 * PRECISION).saturating_sub(number.digits.len()) as i64;
            return number.widened(exponent.max(number.exponent.saturating_sub(zeros))).rounded();
        }
        // A number far below the last digit of the sum only says in which direction the rest lies.
        let floor = large.magnitude().min(large.exponent) - PRECISION as i64 - 2;
        if small.magnitude() < floor - 1 {
            let tiny = Self::new(small.negative, vec![1], floor - 1);
            return large.add(&tiny);
        }
        let (a, b) = (large.widened(exponent), small.widened(exponent));
        let width = a.digits.len().max(b.digits.len()) + 1;
        let padded = |n: &Self| [vec![0; width - n.digits.len()], n.digits.clone()].concat();
        let (left, right) = (padded(&a), padded(&b));
        let sum = if a.negative == b.negative {
            Self::new(a.negative, plus(&left, &right), exponent)
        } else if left >= right {
            Self::new(a.negative, minus(&left, &right), exponent)
        } else {
            Self::new(b.negative, minus(&right, &left), exponent)
        };
        let sum = if sum.is_zero() { Self { negative: a.negative && b.negative, ..sum } } else { sum };
        sum.rounded()
    }

    /// Returns the difference, rounded to 28 digits.
    #[must_use]
    pub(crate) fn subtract(&self, other: &Self) -> Self {
        self.add(&Self { negative: !other.negative, ..other.clone() })
    }

    /// Compares the numbers.
    pub fn compare(&self, other: &Self) -> Ordering {
        let difference = self.subtract(other);
        match (difference.is_zero(), difference.negative) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Less,
            (_, false) => Ordering::Greater,
        }
    }

    /// Writes the number with zeros down to `exponent`.
    fn widened(&self, exponent: i64) -> Self {
        let zeros = if self.is_zero() { 0 } else { (self.exponent - exponent).max(0) };
        let digits = [self.digits.clone(), vec![0; zeros as usize]].concat();
        Self { negative: self.negative, digits, exponent }
    }

    fn rounded(self) -> Self {
        let Some(spare) = self.digits.len().checked_sub(PRECISION).filter(|spare| *spare > 0) else { return self };
        let (kept, dropped) = self.digits.split_at(PRECISION);
        let tie = [vec![5], vec![0; spare - 1]].concat();
        let up = match dropped.cmp(&tie[..]) {
            Ordering::Greater => true,
            Ordering::Equal => kept.last().is_some_and(|digit| digit % 2 == 1),
            Ordering::Less => false,
        };
        let exponent = self.exponent + spare as i64;
        let kept = [&[0], kept].concat();
        let one = [vec![0; PRECISION], vec![u8::from(up)]].concat();
        let rounded = Self::new(self.negative, plus(&kept, &one), exponent);
        debug_assert!(rounded.digits.len() <= PRECISION + 1, "rounding up adds one digit at most");
        rounded.rounded()
    }
}

fn plus(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert_eq!(left.len(), right.len(), "numbers are added column by column");
    let mut carry = 0;
    let mut sum: Vec<u8> = Vec::with_capacity(left.len());
    for (a, b) in left.iter().zip(right).rev() {
        let digit = a + b + carry;
        carry = digit / 10;
        sum.push(digit % 10);
    }
    sum.reverse();
    debug_assert_eq!(carry, 0, "the first column is a zero of both numbers");
    sum
}

fn minus(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert_eq!(left.len(), right.len(), "numbers are subtracted column by column");
    let mut borrow = 0;
    let mut difference: Vec<u8> = Vec::with_capacity(left.len());
    for (a, b) in left.iter().zip(right).rev() {
        let digit = 10 + a - b - borrow;
        borrow = u8::from(digit < 10);
        difference.push(digit % 10);
    }
    difference.reverse();
    debug_assert_eq!(borrow, 0, "the smaller number is subtracted from the larger one");
    difference
}

/// The scientific notation of the decimal standard: `1.10`, `1E-7`, `1.2E+4`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let count = digits.len() as i64;
        let magnitude = self.magnitude();
        if self.negative {
            f.write_str("-")?;
        }
        if self.exponent <= 0 && magnitude >= -6 {
            let before = count + self.exponent;
            return match self.exponent {
                0 => f.write_str(&digits),
                _ if before > 0 => write!(f, "{}.{}", &digits[..before as usize], &digits[before as usize..]),
                _ => write!(f, "0.{}{digits}", "0".repeat(before.unsigned_abs() as usize)),
            };
        }
        let point = if count > 1 { "." } else { "" };
        write!(f, "{}{point}{}E{magnitude:+}", &digits[..1], &digits[1..])
    }
}

/// A number becomes the decimal that Python makes of its text; infinities are refused.
impl Wire for Decimal {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Str(text) => Self::parse(text),
            Value::Float(x) if x.is_finite() => Self::parse(&x.to_string()),
            other => int_digits(other).and_then(|digits| Self::parse(&digits)),
        };
        read.or_else(|| reader.fail("a finite decimal number", &value))
    }

    fn write(&self) -> Value {
        self.to_string().into()
    }
}

serde_impls!(Decimal);

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn texts_are_those_of_the_decimal_standard() {
        for (text, written) in [
            ("1.10", "1.10"),
            ("1e5", "1E+5"),
            ("12e3", "1.2E+4"),
            ("1E-7", "1E-7"),
            ("0.0000001", "1E-7"),
            ("0.000001", "0.000001"),
            ("0E+3", "0E+3"),
            ("-0.0", "-0.0"),
            (" 1_000 ", "1000"),
            (".5", "0.5"),
            ("5.", "5"),
            ("00012.50", "12.50"),
            ("1e1000000", "1E+1000000"),
        ] {
            assert_eq!(decimal(text).to_string(), written);
        }
        for bad in ["", "x", "NaN", "Infinity", "0x1", "1e99999999999999999999", "1e", ".", "--1", "1__0"] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn sums_are_those_of_python() {
        for (a, b, sum, difference) in [
            ("0.10", "0.205", "0.305", "-0.105"),
            ("1", "1.0", "2.0", "0.0"),
            ("1.5", "0.5", "2.0", "1.0"),
            ("1e30", "1", "1.000000000000000000000000000E+30", "1.000000000000000000000000000E+30"),
            ("1e28", "1", "1.000000000000000000000000000E+28", "9999999999999999999999999999"),
            (
                "9999999999999999999999999999",
                "0.5",
                "1.000000000000000000000000000E+28",
                "9999999999999999999999999998",
            ),
            ("1e999999", "1e-999999", "1.000000000000000000000000000E+999999", "1.000000000000000000000000000E+999999"),
            ("0", "1e-5", "0.00001", "-0.00001"),
            ("-0.3", "0.1", "-0.2", "-0.4"),
            ("1e5", "0", "100000", "100000"),
        ] {
            assert_eq!(decimal(a).add(&decimal(b)).to_string(), sum, "{a} + {b}");
            assert_eq!(decimal(a).subtract(&decimal(b)).to_string(), difference, "{a} - {b}");
        }
        assert_eq!(decimal("1").compare(&decimal("1.0")), Ordering::Equal);
        assert_eq!(decimal("0.51").compare(&decimal("0.5")), Ordering::Greater);
        assert_eq!(decimal("-1").compare(&decimal("1e-40")), Ordering::Less);
    }
}

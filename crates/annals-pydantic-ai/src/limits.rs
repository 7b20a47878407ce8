//! The limits that these formats alone use; those that others see are in `annals_base::limits`.

/// Exponent of a decimal number of PydanticAI, in either direction, so that no arithmetic on it overflows (as in
/// Python).
pub(crate) const DECIMAL_EXPONENT_MAX: i64 = 999_999_999_999_999_999;

const _: () = assert!(DECIMAL_EXPONENT_MAX < i64::MAX / 4);

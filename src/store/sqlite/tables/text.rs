//! Texts that are joined by the compiler: statements from the columns of a table.

/// Texts around each of some parts, and between two.
pub(crate) struct Joints(pub(crate) &'static str, pub(crate) &'static str, pub(crate) &'static str);

/// Returns the number of bytes of joined parts.
pub(crate) const fn length(parts: &[&str], listing: &Joints) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < parts.len() {
        sum += listing.0.len() + parts[at].len() + listing.1.len() + if at > 0 { listing.2.len() } else { 0 };
        at += 1;
    }
    sum
}

/// Joins parts.
pub(crate) const fn join<const N: usize>(parts: &[&str], listing: &Joints) -> [u8; N] {
    let (mut bytes, mut end, mut at) = ([0; N], 0, 0);
    while at < parts.len() {
        end = if at > 0 { put(&mut bytes, end, listing.2) } else { end };
        end = put(&mut bytes, end, listing.0);
        end = put(&mut bytes, end, parts[at]);
        end = put(&mut bytes, end, listing.1);
        at += 1;
    }
    bytes
}

const fn put<const N: usize>(bytes: &mut [u8; N], end: usize, part: &str) -> usize {
    let (part, mut at) = (part.as_bytes(), 0);
    while at < part.len() {
        bytes[end + at] = part[at];
        at += 1;
    }
    end + part.len()
}

/// Returns whether two texts are the same.
pub(crate) const fn equals(one: &str, other: &str) -> bool {
    let (one, other, mut at) = (one.as_bytes(), other.as_bytes(), 0);
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Returns joined bytes as text.
pub(crate) const fn utf8(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// Joins a constant list of texts, with a text before each, after each, and between two.
macro_rules! joined {
    ($parts:expr, $before:expr, $after:literal, $between:literal) => {{
        use $crate::store::sqlite::tables::text as joining;
        const PARTS: &[&str] = $parts;
        const LISTING: joining::Joints = joining::Joints($before, $after, $between);
        const BYTES: [u8; joining::length(PARTS, &LISTING)] = joining::join(PARTS, &LISTING);
        joining::utf8(&BYTES)
    }};
}
pub(crate) use joined;

/// Joins constant texts.
macro_rules! text {
    ($($part:expr),+ $(,)?) => {
        $crate::store::sqlite::tables::text::joined!(&[$($part),+], "", "", "")
    };
}
pub(crate) use text;

/// Lists the columns of a table, each with a text before it.
macro_rules! columns {
    ($table:ident, $before:expr) => {
        $crate::store::sqlite::tables::text::joined!($crate::store::sqlite::tables::$table::NAMES, $before, "", ", ")
    };
}
pub(crate) use columns;

//! URLs of servers: what the client of the protocol does not read of them.

/// A URL without what this crate reads of it.
pub(crate) struct ServerUrl {
    pub(crate) url: String,
    /// The file of trusted certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "there is no TLS"))]
    pub(crate) roots: Option<String>,
    /// The options of the startup packet.
    pub(crate) options: Option<String>,
}

impl ServerUrl {
    /// Takes `sslrootcert` and `options` out of a URL. `sslmode=verify-full` says what `require` does here.
    pub(crate) fn of(url: &str) -> Self {
        let (server, parts) = url.split_once('?').unwrap_or((url, ""));
        let (mut roots, mut options) = (None, None);
        let mut kept: Vec<&str> = Vec::new();
        for part in parts.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("sslrootcert", file)) => roots = Some(decoded(file)),
                Some(("options", stated)) => options = Some(decoded(stated)),
                Some(("sslmode", "verify-full")) => kept.push("sslmode=require"),
                _ => kept.push(part),
            }
        }
        let url = if kept.is_empty() { server.to_owned() } else { format!("{server}?{}", kept.join("&")) };
        Self { url, roots, options }
    }
}

/// Returns a text of a URL with the bytes that it names by numbers.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> (String, Option<String>, Option<String>) {
        let ServerUrl { url, roots, options } = ServerUrl::of(url);
        (url, roots, options)
    }

    #[test]
    fn a_url_names_a_file_of_certificates() {
        assert_eq!(of("postgres://a/b"), ("postgres://a/b".into(), None, None));
        let root = Some("/x/ca.pem".to_owned());
        assert_eq!(of("postgres://a/b?sslrootcert=%2Fx%2Fca.pem"), ("postgres://a/b".into(), root.clone(), None));
        let url = "postgres://a/b?sslmode=verify-full&sslrootcert=/x/ca.pem&host=%2Fy";
        assert_eq!(of(url), ("postgres://a/b?sslmode=require&host=%2Fy".into(), root, None));
    }

    #[test]
    fn a_url_has_options_of_the_startup_packet() {
        let (url, _, options) = of("postgres://a/b?host=/x&options=-csearch_path%3Dx%2Cy%20--jit%3doff");
        assert_eq!((url.as_str(), options.as_deref()), ("postgres://a/b?host=/x", Some("-csearch_path=x,y --jit=off")));
        assert_eq!(of("postgres://a/b?options=%zz%c3%a4%").2.as_deref(), Some("%zz\u{e4}%"));
    }
}

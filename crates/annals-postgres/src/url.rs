//! URLs of servers: what the client of the protocol does not read of them.

/// A URL without what this crate reads of it.
pub(crate) struct ServerUrl {
    pub(crate) url: String,
    /// The file of trusted certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "there is no TLS"))]
    pub(crate) roots: Option<String>,
}

impl ServerUrl {
    /// Takes `sslrootcert` out of a URL. `sslmode=verify-full` says what `require` does here.
    pub(crate) fn of(url: &str) -> Self {
        let Some((server, options)) = url.split_once('?') else { return Self { url: url.to_owned(), roots: None } };
        let mut roots = None;
        let mut kept: Vec<&str> = Vec::new();
        for option in options.split('&') {
            match option.split_once('=') {
                Some(("sslrootcert", file)) => roots = Some(file.replace("%2F", "/")),
                Some(("sslmode", "verify-full")) => kept.push("sslmode=require"),
                _ => kept.push(option),
            }
        }
        let url = if kept.is_empty() { server.to_owned() } else { format!("{server}?{}", kept.join("&")) };
        Self { url, roots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_of_certificates() {
        let of = |url| {
            let ServerUrl { url, roots } = ServerUrl::of(url);
            (url, roots)
        };
        assert_eq!(of("postgres://a/b"), ("postgres://a/b".into(), None));
        let root = Some("/x/ca.pem".to_owned());
        assert_eq!(of("postgres://a/b?sslrootcert=%2Fx%2Fca.pem"), ("postgres://a/b".into(), root.clone()));
        let url = "postgres://a/b?sslmode=verify-full&sslrootcert=/x/ca.pem&options=-csearch_path%3Dx";
        assert_eq!(of(url), ("postgres://a/b?sslmode=require&options=-csearch_path%3Dx".into(), root));
    }
}

//! Connections with TLS, to a server with a certificate that the program `openssl` makes.

use annals::base::{Namespace, ThreadId};
use annals::store::StoreError;
use annals::store::log::LogExt;
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![("tls::verified".into(), Box::new(verified))]
}

/// A connection is encrypted if the certificate is trusted and names the host; any other is refused.
fn verified(server: &Server) {
    let Some((other, port, certificate)) = server.with_tls() else {
        println!("tls: no certificate can be made");
        return;
    };
    let url = |host: &str, rest: &str| format!("postgres://postgres@{host}:{port}/postgres?sslmode=require{rest}");
    let roots = format!("&sslrootcert={}", certificate.display());
    let open = PostgresBackend::connect(&url("localhost", &roots)).expect("it is trusted");
    let thread = ThreadId::new("t").expect("an id");
    assert_eq!(open.head(&thread, &Namespace::root()).expect("the head is read"), None);
    let secured = "SELECT count(*) > 0 FROM pg_stat_ssl WHERE ssl AND pid <> pg_backend_pid()";
    assert_eq!(other.select(secured), ["t"]);
    drop(open);
    for refused in [url("localhost", ""), url("127.0.0.1", &roots)] {
        let error = PostgresBackend::connect(&refused).expect_err("it is not trusted");
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
    }
}

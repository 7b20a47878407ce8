//! TLS of connections to a server: asked for with `sslmode=require` in a URL, always verified.
//!
//! The certificate must be that of the host, signed by one of the file that `sslrootcert` names, or else by one that
//! the system trusts. *Absent:* certificates of clients, and the binding of passwords to the channel.

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::url::ServerUrl;

#[cfg(not(feature = "tls"))]
mod connector {
    use super::{Config, ServerUrl, SslMode};

    /// Makes plain connections.
    pub(crate) use tokio_postgres::NoTls as TlsConnector;

    /// Returns how connections are made.
    pub(crate) fn connector(config: &mut Config, _: &ServerUrl) -> Result<TlsConnector, String> {
        match config.get_ssl_mode() {
            SslMode::Require => Err("the URL requires TLS, which this build lacks: see the feature `tls`".into()),
            _ => Ok(TlsConnector),
        }
    }
}

#[cfg(feature = "tls")]
mod connector {
    use std::future::Future;
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::Socket;
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::{Config, ServerUrl, SslMode};

    /// Makes connections: with TLS if the URL requires it, else plain.
    #[derive(Clone, Debug)]
    pub(crate) struct TlsConnector(Arc<ClientConfig>);

    /// Returns how connections are made.
    pub(crate) fn connector(config: &mut Config, url: &ServerUrl) -> Result<TlsConnector, String> {
        let mut roots = RootCertStore::empty();
        if config.get_ssl_mode() == SslMode::Require {
            roots.add_parsable_certificates(certificates(url)?);
            if roots.is_empty() {
                return Err("no trusted certificate is found: name a file of them with `sslrootcert`".into());
            }
        } else {
            config.ssl_mode(SslMode::Disable);
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        Ok(TlsConnector(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Returns the certificates of the file that the URL names, or those of the system.
    fn certificates(url: &ServerUrl) -> Result<Vec<CertificateDer<'static>>, String> {
        let Some(file) = &url.roots else { return Ok(rustls_native_certs::load_native_certs().certs) };
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        read.map_err(|error| format!("the certificates of {file:?} cannot be read: {error}"))
    }

    impl MakeTlsConnect<Socket> for TlsConnector {
        type Stream = SecuredSocket;
        type TlsConnect = HostConnector;
        type Error = io::Error;

        fn make_tls_connect(&mut self, host: &str) -> io::Result<HostConnector> {
            Ok(HostConnector { config: Arc::clone(&self.0), host: host.to_owned() })
        }
    }

    /// Makes a connection to a host.
    pub(crate) struct HostConnector {
        config: Arc<ClientConfig>,
        host: String,
    }

    impl TlsConnect<Socket> for HostConnector {
        type Stream = SecuredSocket;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<SecuredSocket>> + Send>>;

        fn connect(self, socket: Socket) -> Self::Future {
            Box::pin(async move {
                let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
                let connector = tokio_rustls::TlsConnector::from(self.config);
                Ok(SecuredSocket(connector.connect(host, socket).await?))
            })
        }
    }

    /// A socket with TLS.
    pub(crate) struct SecuredSocket(tokio_rustls::client::TlsStream<Socket>);

    impl TlsStream for SecuredSocket {
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }

    impl AsyncRead for SecuredSocket {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, to)
        }
    }

    impl AsyncWrite for SecuredSocket {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}

pub(crate) use connector::{TlsConnector, connector};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_requires_tls_is_not_connected_plainly() {
        let url = ServerUrl::of("postgres://a/b?sslmode=require&sslrootcert=/does/not/exist.pem");
        let mut config: Config = url.url.parse().unwrap();
        assert!(connector(&mut config, &url).is_err());
    }
}

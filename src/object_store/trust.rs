//! HTTPS to a store whose certificate an authority of one's own vouches for.

use aws_sdk_s3::config::SharedHttpClient;
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};

use crate::authorities::Authorities;

/// A client that trusts these authorities and no others. Only for the store itself: where credentials come from, the
/// system's authorities hold.
pub(super) fn client(authorities: &Authorities) -> SharedHttpClient {
    let store = TrustStore::empty().with_pem_certificate(authorities.pem.as_slice());
    let context = TlsContext::builder().with_trust_store(store).build().expect("a context of checked certificates");
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).tls_context(context).build_https()
}

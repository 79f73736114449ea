//! The port of services that ask before they work.

use std::future::Future;

use super::StoreError;
use crate::service::{Registered, Registration, ServiceName, ServiceSeen, ShareReply, ShareTurn};

/// Where services register, and instances of weir share what they have registered.
pub trait Services: Send {
    /// Registers or renews an instance of a service. Safe to call again.
    ///
    /// # Errors
    /// It may have been done or not.
    fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: &Registration,
    ) -> impl Future<Output = Result<Registered, StoreError>> + Send;

    /// Removes an instance of a service; gives whether it was registered. Safe to call again.
    ///
    /// # Errors
    /// It may have been done or not.
    fn deregister(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Takes a turn: reports what is held and wanted, and gets a share. One round trip. Safe to drop half way, and to repeat as it is.
    ///
    /// # Errors
    /// It may have been done or not: the share of before stays in force until its lease ends.
    fn share(
        &mut self,
        service: &ServiceName,
        turn: &ShareTurn,
    ) -> impl Future<Output = Result<ShareReply, StoreError>> + Send;

    /// How a service stands; `None` where none of its instances is registered. Changes nothing.
    ///
    /// # Errors
    /// It cannot be read now.
    fn look(&mut self, service: &ServiceName) -> impl Future<Output = Result<Option<ServiceSeen>, StoreError>> + Send;
}

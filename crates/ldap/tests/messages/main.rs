//! Tests of requests against the bytes that RFC 4511 defines, of answers, and of hostile bytes and user names.

mod answers;
mod bytes;
mod filters;
mod hostile;
mod names;
mod requests;

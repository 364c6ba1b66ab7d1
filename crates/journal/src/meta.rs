//! The file META: which journal this is.

use std::io;

use crate::segment::VERSION;
use crate::{Damage, Fault, OpenError, Storage};

pub(crate) const META: &str = "META";
/// META while it is written.
pub(crate) const META_NEW: &str = "META.new";
const MAGIC: &[u8; 8] = b"PONDHAWK";
const META_BYTES: usize = 28;

/// Contents of the META file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) salt: u64,
}

impl Meta {
    /// None if there is no such file.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Option<Self>, OpenError> {
        let file = match storage.open(META, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::io(META, error)),
        };
        let mut bytes = [0; META_BYTES];
        let read = file.read_at(0, &mut bytes).map_err(|error| OpenError::io(META, error))?;
        if read < META_BYTES {
            return Err(Damage::at(META, 0, Fault::Meta).into());
        }
        Self::decode(&bytes).map(Some)
    }

    /// Writes it under another name first, so that there is a whole one or none.
    pub(crate) fn write(self, storage: &dyn Storage) -> io::Result<()> {
        let file = storage.open(META_NEW, true)?;
        file.write_at(0, &self.encode())?;
        file.sync_data()?;
        storage.rename(META_NEW, META)?;
        storage.sync()
    }

    fn encode(self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; META_BYTES]) -> Result<Self, OpenError> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if &bytes[..8] != MAGIC || word(24) != crc32c::crc32c(&bytes[..24]) {
            return Err(Damage::at(META, 0, Fault::Meta).into());
        }
        if word(8) != VERSION {
            return Err(OpenError::Newer { version: word(8) });
        }
        Ok(Self { salt: u64::from(word(16)) | u64::from(word(20)) << 32 })
    }
}

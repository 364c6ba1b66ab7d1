//! The messages that an application sends and receives, and those that it may expect.

use wire::Qos;

/// One message: its QoS and its number among those of its QoS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) qos: Qos,
    pub(crate) number: u16,
}

impl Item {
    pub(crate) fn payload(self) -> [u8; 3] {
        let [high, low] = self.number.to_be_bytes();
        [self.qos.level(), high, low]
    }

    pub(crate) fn from_payload(payload: &[u8]) -> Self {
        let &[level, high, low] = payload else { panic!("another payload: {payload:?}") };
        let qos = Qos::from_level(level).expect("a QoS");
        Self { qos, number: u16::from_be_bytes([high, low]) }
    }
}

/// The application at one end, as far as its disk knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// Number of published messages, by QoS.
    published: [u16; 3],
    /// Number of different received messages, by QoS.
    got: [u16; 3],
}

impl Journal {
    pub(crate) fn publish(&mut self, qos: Qos) -> Item {
        let published = &mut self.published[usize::from(qos.level())];
        let item = Item { qos, number: *published };
        *published += 1;
        item
    }

    /// Nothing is left out and, at QoS 2, nothing comes again.
    pub(crate) fn get(&mut self, item: Item, qos: Qos) {
        assert_eq!(qos, item.qos);
        let got = &mut self.got[usize::from(qos.level())];
        match qos {
            Qos::ExactlyOnce => assert_eq!(item.number, *got, "QoS 2: the next one"),
            _ => assert!(item.number <= *got, "QoS 1: {} before {got}", item.number),
        }
        *got = (*got).max(item.number + 1);
    }

    /// Everything that the other end has published has arrived.
    pub(crate) fn assert_complete(&self, other: &Self) {
        assert_eq!(self.got, other.published);
    }
}

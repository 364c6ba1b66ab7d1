Feature: Ping
  A client that has nothing to say shows with PINGREQ that it is still there, and learns from PINGRESP that the
  broker is (section 3.12).

  # [MQTT-3.12.4-1, 3.1.1 MQTT-3.12.4-1]
  Scenario Outline: A ping is answered in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | C0 00 | PINGREQ |
    Then frog receives
      | D0 00 | PINGRESP |

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.12.4-1, 3.1.1 MQTT-3.12.4-1]
  Scenario Outline: Each of several pings is answered in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | C0 00 C0 00 C0 00 | PINGREQ, three times |
    Then frog receives
      | D0 00 | PINGRESP |
    And frog receives
      | D0 00 | PINGRESP |
    And frog receives
      | D0 00 | PINGRESP |

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A ping may arrive in two pieces
    Given frog is connected with MQTT 3.1.1
    When frog sends one byte after the other
      | C0 00 | PINGREQ |
    Then frog receives
      | D0 00 | PINGRESP |

  Scenario: A ping right behind CONNECT is answered after CONNACK
    Given frog has opened a connection
    When frog sends
      | 10 10 'MQTT' 04 02 00 00 'frog' | CONNECT |
      | C0 00                           | PINGREQ |
    Then frog receives
      | 20 02 00 00 | CONNACK: accepted |
    And frog receives
      | D0 00 | PINGRESP |

  Scenario: A ping with a body is malformed
    Given frog is connected with MQTT 5.0
    When frog sends
      | C0 01 00 | PINGREQ with one byte too many |
    Then frog receives
      | E0 01 81 | DISCONNECT: Malformed Packet |
    And the connection of frog is closed

  Scenario: A client must not send PINGRESP
    Given frog is connected with MQTT 5.0
    When frog sends
      | D0 00 | PINGRESP |
    Then frog receives
      | E0 01 82 | DISCONNECT: Protocol Error |
    And the connection of frog is closed

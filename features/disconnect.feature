Feature: Disconnect
  DISCONNECT is the last packet of a connection (section 3.14). Without it, a client leaves its will.

  # [MQTT-3.14.4-2, 3.1.1 MQTT-3.14.4-1]
  Scenario Outline: DISCONNECT closes the connection in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | <bytes> | DISCONNECT |
    Then the connection of frog is closed

    Examples:
      | version | bytes       |
      | 3.1     | E0 00       |
      | 3.1.1   | E0 00       |
      | 5.0     | E0 00       |
      | 5.0     | E0 01 00    |
      | 5.0     | E0 02 00 00 |
      | 5.0     | E0 02 04 00 |

  Scenario Outline: A client can reconnect after DISCONNECT with MQTT <version>
    Given frog is connected with MQTT <version>
    And frog has sent
      | E0 00 | DISCONNECT |
    When frog opens a connection
    And frog sends
      | 10 len <protocol> 02 00 00 <no more> 'frog' | CONNECT |
    Then frog receives
      | 20 .. 00 00 * | CONNACK: accepted, no session present |

    Examples:
      | version | protocol    | no more |
      | 3.1     | 'MQIsdp' 03 |         |
      | 3.1.1   | 'MQTT' 04   |         |
      | 5.0     | 'MQTT' 05   | 00      |

  # [MQTT-3.14.4-1, 3.1.1 MQTT-3.14.4-2]
  Scenario Outline: Nothing behind DISCONNECT is processed in MQTT <version>
    Given toad is connected with MQTT 3.1.1
    And toad has sent
      | 82 len 00 01 'pond/#' 00 | SUBSCRIBE |
    And toad has received
      | 90 03 00 01 00 | SUBACK |
    And frog is connected with MQTT <version>
    When frog sends
      | 30 len 'pond/1' <no more> "before" | PUBLISH |
    And frog sends
      | E0 00                            | DISCONNECT |
      | 30 0F 'pond/2' <no more> "after" | PUBLISH    |
    Then toad receives
      | 30 len 'pond/1' "before" | PUBLISH |
    And the connection of frog is closed
    And toad receives nothing

    Examples:
      | version | no more |
      | 3.1     |         |
      | 3.1.1   |         |
      | 5.0     | 00      |

  Scenario Outline: Wrong flags end an MQTT <version> connection all the same
    Given frog is connected with MQTT <version>
    When frog sends
      | E1 00 | DISCONNECT with a reserved flag |
    Then the connection of frog is closed

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |

  Scenario: Wrong flags end an MQTT 5.0 connection with a reason
    Given frog is connected with MQTT 5.0
    When frog sends
      | E1 00 | DISCONNECT with a reserved flag |
    Then frog receives
      | E0 01 81 | DISCONNECT: Malformed Packet |
    And the connection of frog is closed

  Scenario Outline: The will of a client that <end> is published in MQTT <version>
    Given toad is connected with MQTT 3.1.1
    And toad has sent
      | 82 len 00 01 'will/#' 00 | SUBSCRIBE |
    And toad has received
      | 90 03 00 01 00 | SUBACK |
    And frog has opened a connection
    And frog has sent
      | 10 len <protocol> 06 00 00 <no more>   | CONNECT with a will |
      | 'frog' <no more> 'will/frog' 'croaked' | identifier, will    |
    And frog has received
      | 20 .. 00 00 * | CONNACK: accepted |
    When frog sends
      | <last> | frog <end> |
    And frog closes the connection
    Then toad receives
      | 30 len 'will/frog' "croaked" | PUBLISH |
    And toad receives nothing

    Examples:
      | version | end                      | protocol    | no more | last     |
      | 3.1     | says nothing             | 'MQIsdp' 03 |         |          |
      | 3.1.1   | says nothing             | 'MQTT' 04   |         |          |
      | 5.0     | says nothing             | 'MQTT' 05   | 00      |          |
      | 3.1     | sends a malformed packet | 'MQIsdp' 03 |         | 30 00    |
      | 3.1.1   | sends a malformed packet | 'MQTT' 04   |         | 30 00    |
      | 5.0     | sends a malformed packet | 'MQTT' 05   | 00      | 30 00    |
      | 5.0     | disconnects with will    | 'MQTT' 05   | 00      | E0 01 04 |

  # [MQTT-3.14.4-3, 3.1.1 MQTT-3.14.4-3]
  Scenario Outline: The will of a client that disconnects is not published in MQTT <version>
    Given toad is connected with MQTT 3.1.1
    And toad has sent
      | 82 len 00 01 'will/#' 00 | SUBSCRIBE |
    And toad has received
      | 90 03 00 01 00 | SUBACK |
    And frog has opened a connection
    And frog has sent
      | 10 len <protocol> 06 00 00 <no more>   | CONNECT with a will |
      | 'frog' <no more> 'will/frog' 'croaked' | identifier, will    |
    And frog has received
      | 20 .. 00 00 * | CONNACK: accepted |
    When frog sends
      | E0 00 | DISCONNECT |
    Then the connection of frog is closed
    And toad receives nothing

    Examples:
      | version | protocol    | no more |
      | 3.1     | 'MQIsdp' 03 |         |
      | 3.1.1   | 'MQTT' 04   |         |
      | 5.0     | 'MQTT' 05   | 00      |

  # [3.1.1 MQTT-3.1.2-17]
  Scenario: The will of a client whose connection breaks is published and retained
    Given toad is connected with MQTT 5.0
    And toad has sent
      | 82 len 00 01 00 'will/#' 08 | SUBSCRIBE, Retain As Published |
    And toad has received
      | 90 04 00 01 00 00 | SUBACK |
    And frog has opened a connection
    And frog has sent
      | 10 len 'MQTT' 04 26 00 00    | CONNECT with a retained will |
      | 'frog' 'will/frog' 'croaked' | identifier, will             |
    And frog has received
      | 20 02 00 00 | CONNACK: accepted |
    When the connection of frog breaks
    Then toad receives
      | 31 len 'will/frog' 00 "croaked" | PUBLISH, RETAIN 1 |
    When toad sends
      | 82 len 00 02 00 'will/frog' 00 | SUBSCRIBE once more |
    Then toad receives
      | 90 04 00 02 00 00 | SUBACK |
    And toad receives
      | 31 len 'will/frog' 00 "croaked" | PUBLISH, RETAIN 1: the retained message |

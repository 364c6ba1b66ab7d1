Feature: Publish
  A PUBLISH goes to everybody who has subscribed to its topic, and to nobody else (section 3.3).

  # Nobody

  Scenario Outline: A message without a subscriber is accepted in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | 30 <length> | PUBLISH, QoS 0, and how many bytes follow |
      | 00 03 "a/b" | topic name                                |
      | <no more>   | no properties                             |
      | "hey"       | payload                                   |
    Then frog receives nothing

    Examples:
      | version | length | no more |
      | 3.1     | 08     |         |
      | 3.1.1   | 08     |         |
      | 5.0     | 09     | 00      |

  # One client

  Scenario Outline: A client receives its own messages in MQTT <version>
    Given frog is connected with MQTT <version>
    And frog has sent
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 len 00 01 <no more> 00 | SUBACK |
    When frog sends
      | 30 <length> 'a/b' <no more> "hey" | PUBLISH |
    Then frog receives
      | 30 <length> 'a/b' <no more> "hey" | PUBLISH |
    And frog receives nothing

    Examples:
      | version | length | no more |
      | 3.1     | 08     |         |
      | 3.1.1   | 08     |         |
      | 5.0     | 09     | 00      |

  Scenario Outline: CONNECT, SUBSCRIBE and PUBLISH may come at once in MQTT <version>
    Given frog has opened a connection
    When frog sends
      | 10 <length> <protocol> 02 00 00 <no more> 'frog' | CONNECT   |
      | 82 <second> 00 01 <no more> 'a/b' 00             | SUBSCRIBE |
      | 30 len 'a/b' <no more> "hey"                     | PUBLISH   |
    Then frog receives
      | 20 .. 00 00 * | CONNACK: accepted |
    And frog receives
      | 90 len 00 01 <no more> 00 | SUBACK |
    And frog receives
      | 30 len 'a/b' <no more> "hey" | PUBLISH |

    Examples:
      | version | length | second | protocol    | no more |
      | 3.1     | 12     | 08     | 'MQIsdp' 03 |         |
      | 3.1.1   | 10     | 08     | 'MQTT' 04   |         |
      | 5.0     | 11     | 09     | 'MQTT' 05   | 00      |

  # [MQTT-3.8.3-3]
  Scenario: With No Local a client does not receive its own messages
    Given frog is connected with MQTT 5.0
    And frog has sent
      | 82 len 00 01 00 'a/b' 04 | SUBSCRIBE, No Local |
    And frog has received
      | 90 04 00 01 00 00 | SUBACK |
    When frog sends
      | 30 len 'a/b' 00 "hey" | PUBLISH |
    Then frog receives nothing

  Scenario Outline: A payload may be <what>
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    When frog sends
      | 30 len 'a/b' <payload> | PUBLISH |
    Then frog receives
      | 30 len 'a/b' <payload> | PUBLISH |

    Examples:
      | what      | payload           |
      | empty     |                   |
      | text      | "größer als Null" |
      | any bytes | 00 FF C0 80 ED A0 |
      | a packet  | C0 00             |

  Scenario Outline: <what> ends the connection in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | <bytes> | <what> |
    Then the connection of frog is closed

    Examples:
      | version | what                   | bytes                    |
      | 3.1     | QoS 3                  | 36 len 'a/b' 00 01 "hey" |
      | 3.1.1   | QoS 3                  | 36 len 'a/b' 00 01 "hey" |
      | 3.1     | An empty topic         | 30 len 00 00 "hey"       |
      | 3.1.1   | An empty topic         | 30 len 00 00 "hey"       |
      | 3.1     | A wildcard in a topic  | 30 len 'a/+' "hey"       |
      | 3.1.1   | A wildcard in a topic  | 30 len 'a/#' "hey"       |
      | 3.1     | A topic that ends late | 30 04 00 03 "a/"         |
      | 3.1.1   | A topic that ends late | 30 04 00 03 "a/"         |
      | 3.1.1   | DUP at QoS 0           | 38 len 'a/b' "hey"       |

  Scenario Outline: <what> ends the connection in MQTT 5.0 with a reason
    Given frog is connected with MQTT 5.0
    When frog sends
      | <bytes> | <what> |
    Then frog receives
      | E0 01 <reason> | DISCONNECT |
    And the connection of frog is closed

    Examples:
      | what                            | bytes                          | reason |
      | QoS 3                           | 36 len 'a/b' 00 01 00 "hey"    | 81     |
      | DUP at QoS 0                    | 38 len 'a/b' 00 "hey"          | 81     |
      | An empty topic without an alias | 30 len 00 00 00 "hey"          | 82     |
      | A wildcard in a topic           | 30 len 'a/+' 00 "hey"          | 81     |
      | A topic alias 0                 | 30 len 'a/b' 03 23 00 00 "hey" | 94     |
      | A subscription identifier       | 30 len 'a/b' 02 0B 01 "hey"    | 82     |

  # Two clients

  Scenario Outline: A message passes from MQTT <from> to MQTT <to>
    Given frog is connected with MQTT <to>
    And frog has sent
      | 82 len 00 01 <to props> 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 len 00 01 <to props> 00 | SUBACK |
    And toad is connected with MQTT <from>
    When toad sends
      | 30 len 'a/b' <from props> "hey" | PUBLISH |
    Then frog receives
      | 30 len 'a/b' <to props> "hey" | PUBLISH |
    And frog receives nothing
    And toad receives nothing

    Examples:
      | from  | from props | to    | to props |
      | 3.1   |            | 3.1   |          |
      | 3.1   |            | 3.1.1 |          |
      | 3.1   |            | 5.0   | 00       |
      | 3.1.1 |            | 3.1   |          |
      | 3.1.1 |            | 3.1.1 |          |
      | 3.1.1 |            | 5.0   | 00       |
      | 5.0   | 00         | 3.1   |          |
      | 5.0   | 00         | 3.1.1 |          |
      | 5.0   | 00         | 5.0   | 00       |

  Scenario: Messages stay in order
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 'a/#' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And toad is connected with MQTT 3.1.1
    When toad sends
      | 30 06 'a/1' "1" | PUBLISH |
      | 30 06 'a/1' "2" | PUBLISH |
      | 30 06 'a/2' "3" | PUBLISH |
      | 30 06 'a/1' "4" | PUBLISH |
    Then frog receives
      | 30 06 'a/1' "1" | PUBLISH |
    And frog receives
      | 30 06 'a/1' "2" | PUBLISH |
    And frog receives
      | 30 06 'a/2' "3" | PUBLISH |
    And frog receives
      | 30 06 'a/1' "4" | PUBLISH |

  # [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
  Scenario: Properties are forwarded to MQTT 5.0
    Given frog is connected with MQTT 5.0
    And frog has sent
      | 82 len 00 01 00 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 04 00 01 00 00 | SUBACK |
    And toad is connected with MQTT 5.0
    When toad sends
      | 30 len 'a/b'          | PUBLISH                      |
      | 26                    | 38 bytes of properties       |
      | 01 01                 | Payload Format Indicator 1   |
      | 02 00 00 0E 10        | Message Expiry Interval 3600 |
      | 03 'text'             | Content Type                 |
      | 08 'a/c'              | Response Topic               |
      | 09 00 02 FF 00        | Correlation Data             |
      | 26 'n' 'v'  26 'n' '' | User Property, twice         |
      | "hey"                 | payload                      |
    Then frog receives
      | 30 len 'a/b'          | PUBLISH                      |
      | 26                    | 38 bytes of properties       |
      | 01 01                 | Payload Format Indicator 1   |
      | 02 00 00 0E 10        | Message Expiry Interval 3600 |
      | 03 'text'             | Content Type                 |
      | 08 'a/c'              | Response Topic               |
      | 09 00 02 FF 00        | Correlation Data             |
      | 26 'n' 'v'  26 'n' '' | User Property, twice         |
      | "hey"                 | payload                      |

  Scenario Outline: Properties are left out for MQTT <version>
    Given frog is connected with MQTT <version>
    And frog has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And toad is connected with MQTT 5.0
    When toad sends
      | 30 len 'a/b' 02 01 01 "hey" | PUBLISH with a Payload Format Indicator |
    Then frog receives
      | 30 08 'a/b' "hey" | PUBLISH |

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |

  # [MQTT-3.1.2-27]
  Scenario: A topic alias belongs to one connection
    Given frog is connected with MQTT 5.0
    And frog has sent
      | 82 len 00 01 00 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 04 00 01 00 00 | SUBACK |
    And toad is connected with MQTT 5.0
    When toad sends
      | 30 0C 'a/b' 03 23 00 01 "hey" | PUBLISH, a/b is 1 from now on |
      | 30 09 ''    03 23 00 01 "you" | PUBLISH to 1                  |
    Then frog receives
      | 30 09 'a/b' 00 "hey" | PUBLISH |
    And frog receives
      | 30 09 'a/b' 00 "you" | PUBLISH |

  # [MQTT-3.3.1-5, MQTT-3.3.1-9, MQTT-3.3.1-12, 3.1.1 MQTT-3.3.1-5, 3.1.1 MQTT-3.3.1-6, 3.1.1 MQTT-3.3.1-7,
  # 3.1.1 MQTT-3.3.1-8, 3.1.1 MQTT-3.3.1-9]
  Scenario Outline: A retained message waits for MQTT <version>
    Given toad is connected with MQTT <version>
    And toad has sent
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    And toad has received
      | 90 len 00 01 <no more> 00 | SUBACK |
    When toad sends
      | 31 len 'a/b' <no more> "old" | PUBLISH, RETAIN 1 |
    Then toad receives
      | 30 len 'a/b' <no more> "old" | PUBLISH: it was there before |
    When toad sends
      | 31 len 'a/b' <no more> "new" | PUBLISH, RETAIN 1 |
    Then toad receives
      | 30 len 'a/b' <no more> "new" | PUBLISH |
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    Then frog receives
      | 90 len 00 01 <no more> 00 | SUBACK |
    And frog receives
      | 31 len 'a/b' <no more> "new" | PUBLISH, RETAIN 1 |
    And frog receives nothing

    Examples:
      | version | no more |
      | 3.1     |         |
      | 3.1.1   |         |
      | 5.0     | 00      |

  # [MQTT-3.3.1-6, MQTT-3.3.1-7, 3.1.1 MQTT-3.3.1-10, 3.1.1 MQTT-3.3.1-11]
  Scenario Outline: An empty message removes the retained one in MQTT <version>
    Given toad is connected with MQTT <version>
    And toad has sent
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    And toad has received
      | 90 len 00 01 <no more> 00 | SUBACK |
    When toad sends
      | 31 len 'a/b' <no more> "old" | PUBLISH, RETAIN 1 |
    Then toad receives
      | 30 len 'a/b' <no more> "old" | PUBLISH |
    When toad sends
      | 31 len 'a/b' <no more> | PUBLISH, RETAIN 1, no payload |
    Then toad receives
      | 30 len 'a/b' <no more> | PUBLISH, no payload |
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    Then frog receives
      | 90 len 00 01 <no more> 00 | SUBACK |
    And frog receives nothing

    Examples:
      | version | no more |
      | 3.1     |         |
      | 3.1.1   |         |
      | 5.0     | 00      |

  # Three clients

  Scenario Outline: All subscribers receive a message: MQTT <version> among others
    Given frog is connected with MQTT 3.1
    And frog has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And newt is connected with MQTT 5.0
    And newt has sent
      | 82 len 00 01 00 'a/b' 00 | SUBSCRIBE |
    And newt has received
      | 90 04 00 01 00 00 | SUBACK |
    And toad is connected with MQTT <version>
    When toad sends
      | 30 len 'a/b' <no more> "hey" | PUBLISH |
    Then frog receives
      | 30 08 'a/b' "hey" | PUBLISH |
    And newt receives
      | 30 09 'a/b' 00 "hey" | PUBLISH |
    And toad receives nothing

    Examples:
      | version | no more |
      | 3.1     |         |
      | 3.1.1   |         |
      | 5.0     | 00      |

  Scenario: A client that has disconnected or unsubscribed receives nothing
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And newt is connected with MQTT 3.1.1
    And newt has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And newt has received
      | 90 03 00 01 00 | SUBACK |
    And frog has sent
      | A2 len 00 02 'a/b' | UNSUBSCRIBE |
    And frog has received
      | B0 02 00 02 | UNSUBACK |
    And toad is connected with MQTT 3.1.1
    When toad sends
      | 30 08 'a/b' "hey" | PUBLISH |
    Then newt receives
      | 30 08 'a/b' "hey" | PUBLISH |
    And frog receives nothing
    When newt sends
      | E0 00 | DISCONNECT |
    Then the connection of newt is closed
    When toad sends
      | 30 08 'a/b' "you" | PUBLISH |
    Then toad receives nothing

  Scenario: A protocol error of one client does not affect other clients
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And toad is connected with MQTT 3.1.1
    And newt is connected with MQTT 5.0
    When newt sends
      | 30 0B 'a/b' 00 "first" | PUBLISH           |
      | 30 00                  | no PUBLISH        |
      | 30 0A 'a/b' 00 "last"  | PUBLISH, too late |
    Then newt receives
      | E0 01 81 | DISCONNECT: Malformed Packet |
    And the connection of newt is closed
    And frog receives
      | 30 0A 'a/b' "first" | PUBLISH |
    When toad sends
      | 30 08 'a/b' "hey" | PUBLISH |
    Then frog receives
      | 30 08 'a/b' "hey" | PUBLISH |

Feature: Subscribe
  SUBSCRIBE asks for messages by topic filter and is answered with one code for each filter; UNSUBSCRIBE takes filters
  back (sections 3.8 to 3.11).

  # [MQTT-2.2.1-6, MQTT-3.8.4-1, MQTT-3.8.4-2, MQTT-3.8.4-6, 3.1.1 MQTT-2.3.1-7, 3.1.1 MQTT-3.8.4-1,
  # 3.1.1 MQTT-3.8.4-2, 3.1.1 MQTT-3.8.4-5]
  Scenario Outline: A filter is granted in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 <length> | SUBSCRIBE, and how many bytes follow |
      | 00 0A       | packet identifier 10                 |
      | <no more>   | no properties                        |
      | 00 03 "a/b" | topic filter                         |
      | 00          | QoS 0                                |
    Then frog receives
      | <answer> | SUBACK for packet 10: QoS 0 is granted |

    Examples:
      | version | length | no more | answer            |
      | 3.1     | 08     |         | 90 03 00 0A 00    |
      | 3.1.1   | 08     |         | 90 03 00 0A 00    |
      | 5.0     | 09     | 00      | 90 04 00 0A 00 00 |

  # [MQTT-3.8.4-5, MQTT-3.8.4-6, 3.1.1 MQTT-3.8.4-4, 3.1.1 MQTT-3.8.4-5]
  Scenario Outline: Each of several filters has its answer in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 len FF FF <no more> | SUBSCRIBE, packet identifier 65535 |
      | 'a/b' 00               | filter, QoS 0                      |
      | '+/depth' 00           | filter, QoS 0                      |
      | '/#' 00                | filter, QoS 0                      |
    Then frog receives
      | <answer> | SUBACK: three times QoS 0 |

    Examples:
      | version | no more | answer                  |
      | 3.1     |         | 90 05 FF FF 00 00 00    |
      | 3.1.1   |         | 90 05 FF FF 00 00 00    |
      | 5.0     | 00      | 90 06 FF FF 00 00 00 00 |

  # [MQTT-2.2.1-6, MQTT-3.10.4-1, MQTT-3.10.4-2, MQTT-3.10.4-4, 3.1.1 MQTT-2.3.1-7, 3.1.1 MQTT-3.10.4-1,
  # 3.1.1 MQTT-3.10.4-2, 3.1.1 MQTT-3.10.4-4]
  Scenario Outline: A client unsubscribes in MQTT <version>
    Given frog is connected with MQTT <version>
    And frog has sent
      | 82 len 00 01 <no more> 'a/b' 00 | SUBSCRIBE |
    And frog has received
      | <granted> | SUBACK |
    When frog sends
      | A2 len 00 02 <no more> | UNSUBSCRIBE, packet identifier 2 |
      | 'a/b'                  | filter                           |
    Then frog receives
      | <answer> | UNSUBACK for packet 2 |
    When frog sends
      | 30 len 'a/b' <no more> "hey" | PUBLISH |
    Then frog receives nothing

    Examples:
      | version | no more | granted           | answer            |
      | 3.1     |         | 90 03 00 01 00    | B0 02 00 02       |
      | 3.1.1   |         | 90 03 00 01 00    | B0 02 00 02       |
      | 5.0     | 00      | 90 04 00 01 00 00 | B0 04 00 02 00 00 |

  # [MQTT-3.10.4-5, 3.1.1 MQTT-3.10.4-5]
  Scenario Outline: UNSUBSCRIBE for an unknown filter is answered in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | A2 len 00 07 <no more> 'a/b' | UNSUBSCRIBE, packet identifier 7 |
    Then frog receives
      | <answer> | UNSUBACK for packet 7 |

    Examples:
      | version | no more | answer            |
      | 3.1     |         | B0 02 00 07       |
      | 3.1.1   |         | B0 02 00 07       |
      | 5.0     | 00      | B0 04 00 07 00 11 |

  # [MQTT-3.8.4-3]
  Scenario Outline: The same filter again replaces the first in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 len 00 01 <no more> 'a/b' 00 'a/b' 00 | SUBSCRIBE, one filter twice |
    Then frog receives
      | <granted> | SUBACK: both granted |
    When frog sends
      | 30 len 'a/b' <no more> "hey" | PUBLISH |
    Then frog receives
      | 30 len 'a/b' <no more> "hey" | PUBLISH |
    And frog receives nothing

    Examples:
      | version | no more | granted              |
      | 3.1     |         | 90 04 00 01 00 00    |
      | 3.1.1   |         | 90 04 00 01 00 00    |
      | 5.0     | 00      | 90 05 00 01 00 00 00 |

  Scenario Outline: <what> ends the connection in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | <bytes> | <what> |
    Then the connection of frog is closed

    Examples:
      | version | what                           | bytes                 |
      | 3.1     | SUBSCRIBE without a filter     | 82 02 00 01           |
      | 3.1.1   | SUBSCRIBE without a filter     | 82 02 00 01           |
      | 3.1     | SUBSCRIBE with QoS 3           | 82 len 00 01 'a/b' 03 |
      | 3.1.1   | SUBSCRIBE with QoS 3           | 82 len 00 01 'a/b' 03 |
      | 3.1     | SUBSCRIBE, packet identifier 0 | 82 len 00 00 'a/b' 00 |
      | 3.1.1   | SUBSCRIBE, packet identifier 0 | 82 len 00 00 'a/b' 00 |
      | 3.1.1   | SUBSCRIBE with wrong flags     | 80 len 00 01 'a/b' 00 |
      | 3.1     | UNSUBSCRIBE without a filter   | A2 02 00 01           |
      | 3.1.1   | UNSUBSCRIBE without a filter   | A2 02 00 01           |
      | 3.1.1   | SUBACK from a client           | 90 03 00 01 00        |

  Scenario Outline: <what> ends the connection in MQTT 5.0 with a reason
    Given frog is connected with MQTT 5.0
    When frog sends
      | <bytes> | <what> |
    Then frog receives
      | E0 01 <reason> | DISCONNECT |
    And the connection of frog is closed

    Examples:
      | what                             | bytes                    | reason |
      | SUBSCRIBE without a filter       | 82 03 00 01 00           | 82     |
      | SUBSCRIBE with QoS 3             | 82 len 00 01 00 'a/b' 03 | 82     |
      | SUBSCRIBE, packet identifier 0   | 82 len 00 00 00 'a/b' 00 | 82     |
      | SUBSCRIBE with Retain Handling 3 | 82 len 00 01 00 'a/b' 30 | 82     |
      | SUBSCRIBE with a reserved option | 82 len 00 01 00 'a/b' 40 | 81     |
      | SUBSCRIBE with wrong flags       | 80 len 00 01 00 'a/b' 00 | 81     |
      | SUBSCRIBE without properties     | 82 len 00 01 'a/b' 00    | 81     |
      | UNSUBSCRIBE without a filter     | A2 03 00 01 00           | 82     |
      | SUBACK from a client             | 90 04 00 01 00 00        | 82     |

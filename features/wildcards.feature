Feature: Wildcards
  In a filter, + stands for one level and # for all that are left; topics that begin with $ are not for filters that
  begin with a wildcard (section 4.7).

  # [MQTT-3.3.2-3, 3.1.1 MQTT-3.3.2-3, 3.1.1 MQTT-3.8.3-2]
  Scenario Outline: <filter> matches <topic>
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 '<filter>' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    And toad is connected with MQTT 5.0
    When toad sends
      | 30 len '<topic>' 00 "hey" | PUBLISH |
    Then frog receives
      | 30 len '<topic>' "hey" | PUBLISH |

    Examples:
      | filter        | topic            |
      | pond          | pond             |
      | +             | pond             |
      | #             | pond             |
      | pond/+        | pond/north       |
      | +/north       | pond/north       |
      | +/+           | pond/north       |
      | pond/+/depth  | pond/north/depth |
      | pond/+/depth  | pond//depth      |
      | +/+/+         | //               |
      | /+            | /pond            |
      | +/+           | /pond            |
      | pond/+        | pond/            |
      | pond/#        | pond             |
      | pond/#        | pond/            |
      | pond/#        | pond/north       |
      | pond/#        | pond/north/depth |
      | #             | pond/north/depth |
      | #             | /                |
      | +/#           | /pond            |
      | +/north/#     | pond/north       |
      | $pond/#       | $pond/north      |
      | $pond/+       | $pond/north      |
      | Teich/+/größe | Teich/ü/größe    |

  # [3.1.1 MQTT-3.3.2-3]
  Scenario Outline: <filter> does not match <topic>
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 '<filter>' 00 | SUBSCRIBE |
    And frog has received
      | 90 03 00 01 00 | SUBACK |
    When frog sends
      | 30 len '<topic>' "hey" | PUBLISH |
    Then frog receives nothing

    Examples:
      | filter       | topic            |
      | pond         | Pond             |
      | pond         | pond/            |
      | pond         | /pond            |
      | pond/north   | pond             |
      | +            | /pond            |
      | +            | pond/north       |
      | pond/+       | pond             |
      | pond/+       | pond/north/depth |
      | pond/+/depth | pond/depth       |
      | pond/#       | ponds            |
      | pond/#       | Pond/north       |
      | /#           | pond             |
      | #            | $pond            |
      | +            | $pond            |
      | #            | $pond/north      |
      | +/north      | $pond/north      |

  Scenario: A client with two matching filters receives one copy
    Given frog is connected with MQTT 3.1.1
    And frog has sent
      | 82 len 00 01 'pond/#' 00 '+/north' 00 | SUBSCRIBE |
    And frog has received
      | 90 04 00 01 00 00 | SUBACK |
    When frog sends
      | 30 len 'pond/north' "hey" | PUBLISH |
    Then frog receives
      | 30 len 'pond/north' "hey" | PUBLISH |
    And frog receives nothing

  Scenario: In MQTT 5.0 the copy has the identifiers of both
    Given frog is connected with MQTT 5.0
    And frog has sent
      | 82 len 00 01 02 0B 01 'pond/#' 00 | SUBSCRIBE, subscription identifier 1 |
    And frog has received
      | 90 04 00 01 00 00 | SUBACK |
    And frog has sent
      | 82 len 00 02 02 0B 02 '+/north' 00 | SUBSCRIBE, subscription identifier 2 |
    And frog has received
      | 90 04 00 02 00 00 | SUBACK |
    When frog sends
      | 30 len 'pond/north' 00 "hey" | PUBLISH |
    Then frog receives
      | 30 len 'pond/north' 04 0B .. 0B .. "hey" | PUBLISH with two subscription identifiers |
    And frog receives nothing

  Scenario Outline: A new subscription receives all retained messages that its wildcard matches
    Given frog is connected with MQTT <version>
    And frog has sent
      | 82 len 00 01 <no more> 'pond/south' 00 | SUBSCRIBE |
    And frog has received
      | 90 len 00 01 <no more> 00 | SUBACK |
    When frog sends
      | 31 <length> 'pond/north' <no more> "6" | PUBLISH, RETAIN 1 |
      | 31 <length> 'pool/south' <no more> "7" | PUBLISH, RETAIN 1 |
      | 31 <length> 'pond/south' <no more> "8" | PUBLISH, RETAIN 1 |
    Then frog receives
      | 30 <length> 'pond/south' <no more> "8" | PUBLISH |
    Given newt is connected with MQTT <version>
    When newt sends
      | 82 len 00 01 <no more> 'pond/+' 00 | SUBSCRIBE |
    Then newt receives
      | 90 len 00 01 <no more> 00 | SUBACK |
    And newt receives
      | 31 <length> 00 0A "pond/" .. .. .. "th" <no more> .. | PUBLISH, RETAIN 1: one of them |
    And newt receives
      | 31 <length> 00 0A "pond/" .. .. .. "th" <no more> .. | PUBLISH, RETAIN 1: the other |
    And newt receives nothing

    Examples:
      | version | length | no more |
      | 3.1     | 0D     |         |
      | 3.1.1   | 0D     |         |
      | 5.0     | 0E     | 00      |

  Scenario Outline: '<filter>' is not a valid filter: an MQTT <version> connection is closed
    Given frog is connected with MQTT <version>
    When frog sends
      | 82 len 00 01 '<filter>' 00 | SUBSCRIBE |
    Then the connection of frog is closed

    Examples:
      | version | filter       |
      | 3.1     | pond#        |
      | 3.1     | pond/#/north |
      | 3.1     | +pond        |
      | 3.1.1   | pond#        |
      | 3.1.1   | #/pond       |
      | 3.1.1   | pond/#/north |
      | 3.1.1   | pond+        |
      | 3.1.1   | +pond/north  |
      | 3.1.1   |              |

  Scenario Outline: '<filter>' is not a valid filter: an MQTT 5.0 connection is closed with a reason
    Given frog is connected with MQTT 5.0
    When frog sends
      | 82 len 00 01 00 '<filter>' 00 | SUBSCRIBE |
    Then frog receives
      | E0 01 81 | DISCONNECT: Malformed Packet |
    And the connection of frog is closed

    Examples:
      | filter       |
      | pond#        |
      | #/pond       |
      | pond/#/north |
      | pond+        |
      | +pond/north  |
      |              |

Feature: Connect
  A connection begins with CONNECT, and the broker answers with CONNACK or closes it (sections 3.1 and 3.2).

  The tables have bytes on the left and what they mean on the right. 'frog' is a string with its two bytes of length,
  "frog" is the text alone, len counts the bytes that follow, .. is any byte, and * is whatever else the packet has.

  Scenario Outline: A client is accepted with MQTT <version>
    Given frog has opened a connection
    When frog sends
      | 10 <length> | CONNECT, and how many bytes follow |
      | <protocol>  | protocol name and level            |
      | 02          | Clean Session, or Clean Start      |
      | 00 3C       | Keep Alive of 60 seconds           |
      | <no more>   | no properties                      |
      | 'frog'      | client identifier                  |
    Then frog receives
      | <answer> | CONNACK: accepted |
    And frog receives nothing

    Examples:
      | version | length | protocol        | no more | answer        |
      | 3.1     | 12     | 'MQIsdp' 03     |         | 20 02 00 00   |
      | 3.1.1   | 10     | 00 04 "MQTT" 04 |         | 20 02 00 00   |
      | 5.0     | 11     | 00 04 "MQTT" 05 | 00      | 20 .. 00 00 * |

  # [MQTT-3.1.4-5, 3.1.1 MQTT-3.1.4-4]
  Scenario Outline: CONNECT may arrive byte by byte with MQTT <version>
    Given frog has opened a connection
    When frog sends one byte after the other
      | 10 len             | CONNECT                      |
      | <protocol>         | protocol name and level      |
      | 02 00 00 <no more> | Clean Session, no keep alive |
      | 'frog'             | client identifier            |
    Then frog receives
      | <answer> | CONNACK: accepted |

    Examples:
      | version | protocol    | no more | answer        |
      | 3.1     | 'MQIsdp' 03 |         | 20 02 00 00   |
      | 3.1.1   | 'MQTT' 04   |         | 20 02 00 00   |
      | 5.0     | 'MQTT' 05   | 00      | 20 .. 00 00 * |

  Scenario Outline: CONNECT may have a user name, a password and a will with MQTT <version>
    Given frog has opened a connection
    When frog sends
      | 10 len             | CONNECT                                   |
      | <protocol>         | protocol name and level                   |
      | E6                 | user name, password, retained will, clean |
      | 00 00 <no more>    | no keep alive                             |
      | 'frog'             | client identifier                         |
      | <no more> 'a/will' | will properties, will topic               |
      | 'gone'             | will payload                              |
      | 'king'             | user name                                 |
      | 'ribbit'           | password                                  |
    Then frog receives
      | <answer> | CONNACK: accepted |

    Examples:
      | version | protocol    | no more | answer        |
      | 3.1     | 'MQIsdp' 03 |         | 20 02 00 00   |
      | 3.1.1   | 'MQTT' 04   |         | 20 02 00 00   |
      | 5.0     | 'MQTT' 05   | 00      | 20 .. 00 00 * |

  Scenario Outline: A client without an identifier receives one with MQTT <version>
    Given frog has opened a connection
    When frog sends
      | 10 len          | CONNECT                    |
      | <protocol>      | protocol name and level    |
      | <clean> 00 00   | Clean Session or not       |
      | <no more> 00 00 | an empty client identifier |
    Then frog receives
      | <answer> | CONNACK: accepted |

    Examples:
      | version | protocol  | clean | no more | answer        |
      | 3.1.1   | 'MQTT' 04 | 02    |         | 20 02 00 00   |
      | 5.0     | 'MQTT' 05 | 02    | 00      | 20 .. 00 00 * |
      | 5.0     | 'MQTT' 05 | 00    | 00      | 20 .. 00 00 * |

  Scenario Outline: <reason>: refused
    Given frog has opened a connection
    When frog sends
      | 10 len                  | CONNECT                 |
      | <protocol>              | protocol name and level |
      | <flags> 00 00 <no more> | flags, no keep alive    |
      | <client>                | client identifier       |
    Then frog receives
      | <answer> | CONNACK: refused |
    And the connection of frog is closed

    Examples:
      | reason                           | protocol    | flags | no more | client | answer         |
      | No identifier in MQTT 3.1        | 'MQIsdp' 03 | 02    |         | 00 00  | 20 02 00 02    |
      | No identifier for a kept session | 'MQTT' 04   | 00    |         | 00 00  | 20 02 00 02    |
      | A level before MQTT 3.1          | 'MQTT' 02   | 02    |         | 'frog' | 20 02 00 01    |
      | A level that 3.1 does not have   | 'MQIsdp' 04 | 02    |         | 'frog' | 20 02 00 01    |
      | A level after MQTT 5.0           | 'MQTT' 06   | 02    | 00      | 'frog' | 20 03 00 84 00 |
      | The reserved flag in MQTT 5.0    | 'MQTT' 05   | 03    | 00      | 'frog' | 20 03 00 81 00 |

  Scenario Outline: <reason>: closed without an answer
    Given frog has opened a connection
    When frog sends
      | <bytes> | <reason> |
    Then the connection of frog is closed

    Examples:
      | reason                             | bytes                                     |
      | Another protocol                   | 10 len 'AMQP' 04 02 00 00 'frog'          |
      | The reserved flag in MQTT 3.1.1    | 10 len 'MQTT' 04 03 00 00 'frog'          |
      | A password without a user in 3.1.1 | 10 len 'MQTT' 04 42 00 00 'frog' 'ribbit' |
      | A will that is not there           | 10 len 'MQTT' 04 06 00 00 'frog'          |
      | PINGREQ as the first packet        | C0 00                                     |
      | PUBLISH as the first packet        | 30 len 'a/b' "hey"                        |
      | SUBSCRIBE as the first packet      | 82 len 00 01 'a/b' 00                     |
      | DISCONNECT as the first packet     | E0 00                                     |
      | A web browser                      | "GET / HTTP/1.1" 0D 0A 0D 0A              |

  # [3.1.1 MQTT-3.1.0-2]
  Scenario Outline: A second CONNECT ends the connection in MQTT <version>
    Given frog is connected with MQTT <version>
    When frog sends
      | 10 len 'MQTT' 04 02 00 00 'frog' | CONNECT |
    Then the connection of frog is closed

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |

  # [MQTT-3.1.0-2]
  Scenario: A second CONNECT ends the connection in MQTT 5.0 with a reason
    Given frog is connected with MQTT 5.0
    When frog sends
      | 10 len 'MQTT' 05 02 00 00 00 'frog' | CONNECT |
    Then frog receives
      | E0 01 82 | DISCONNECT: Protocol Error |
    And the connection of frog is closed

  # [3.1.1 MQTT-3.1.4-2]
  Scenario Outline: A second client with the same identifier replaces one of MQTT <version>
    Given frog is connected with MQTT <version>
    And twin has opened a connection
    When twin sends
      | 10 len 'MQTT' 04 02 00 00 'frog' | CONNECT as frog |
    Then twin receives
      | 20 02 00 00 | CONNACK: accepted |
    And the connection of frog is closed
    And twin receives nothing

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |

  # [MQTT-3.1.4-3]
  Scenario: A second client with the same identifier replaces one of MQTT 5.0, which receives a reason
    Given frog is connected with MQTT 5.0
    And twin has opened a connection
    When twin sends
      | 10 len 'MQTT' 05 02 00 00 00 'frog' | CONNECT as frog |
    Then twin receives
      | 20 .. 00 00 * | CONNACK: accepted |
    And frog receives
      | E0 01 8E | DISCONNECT: Session taken over |
    And the connection of frog is closed
    And twin receives nothing

// Stands in for QuPath's class of this name: features as maps, compressed files by their ending.
package qupath.lib.io

import groovy.json.JsonSlurper
import java.util.zip.GZIPInputStream

class PathIO {
    static List readObjects(File file) {
        file.withInputStream { stream ->
            def text = file.name.endsWith('.gz') ? new GZIPInputStream(stream) : stream
            new JsonSlurper().parse(text, 'UTF-8').features
        }
    }
}
